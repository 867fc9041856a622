-- Replace what a lease has reserved by what was spent, and forget the lease. A tab's cost is
-- what was spent of it. A window that is over is left as it is.

local parts = parts_of(call.lease)
if not parts then return 0 end

for i, tab in ipairs(call.tabs) do
    if kind_of(tab) == PLACES then
        redis.call('ZREM', tab[1], call.id)
    else
        local window, reserved_here, reserved = parts[i][1], parts[i][2], parts[i][3]
        local unused = reserved - cost_of(tab)
        if is_shadow(tab) then unused = math.max(0, unused) end
        unused = math.min(unused, reserved_here)
        if unused ~= 0 then
            local used, window_now = read(tab)
            if window_now == window then write(tab, math.max(0, used - unused), window) end
        end
    end
end
redis.call('DEL', call.lease)
return 1

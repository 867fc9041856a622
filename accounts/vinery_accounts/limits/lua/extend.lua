-- Reserve as many more tokens of an answer as fit, `call.asked` at most. A counter's cost is that of
-- one token. Returns {granted, now, what was used of each rule, how many tokens fit into each}, the
-- last false where the rule does not matter. `granted` is -1 for a lost lease.

local parts = parts_of(call.lease)
if not parts then return cmsgpack.pack({-1}) end

-- As many as the memory limiter keeps. Earlier additions count as part of the first.
local function remember(part, number, cost)
    if number == 0 then return end
    local later = part[6] or {}
    part[6] = #later < 4 and later or {later[3], later[4]}
    part[6][#part[6] + 1] = number
    part[6][#part[6] + 1] = cost
end

local granted = call.asked
local used, windows, fitting = {}, {}, {}
for i, counter in ipairs(call.counters) do
    local cost = cost_of(counter)
    used[i], fitting[i] = 0, false
    if cost > 0 and not parts[i][4] then
        used[i], windows[i] = read(counter)
        fitting[i] = math.floor((capacity_of(counter) - used[i]) / cost)
        if not is_shadow(counter) then granted = math.max(0, math.min(granted, fitting[i])) end
    end
end

for i, counter in ipairs(call.counters) do
    local cost = cost_of(counter) * granted
    if fitting[i] and cost > 0 then
        local part = parts[i]
        if is_shadow(counter) and fitting[i] < granted then
            part[4] = true
            cost = math.max(0, capacity_of(counter) - used[i])
        end
        if windows[i] ~= part[1] then part[1], part[2] = windows[i], 0 end
        part[2], part[3] = part[2] + cost, part[3] + cost
        if cost > 0 then remember(part, add(counter, used[i], cost, windows[i]), cost) end
    end
end
if granted > 0 then keep(call.lease, parts) end
return cmsgpack.pack({granted, now, used, fitting})

-- Raise what is used to at least a tab's cost: of a quota, where the window is the one that was
-- counted; of a bucket, where nothing is used, to what is left of it since.

for i, tab in ipairs(call.tabs) do
    local used, window = read(tab)
    local since, cost = call.since_ms[i], cost_of(tab)
    if kind_of(tab) == BUCKET then
        cost = used == 0 and used_after(cost, tab[3], since) or 0
    elseif kind_of(tab) ~= TOTAL and not (kind_of(tab) == CALENDAR and window == since) then
        cost = 0
    end
    if used < cost then add(tab, used, cost - used, window) end
end
return 1

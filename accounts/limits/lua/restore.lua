-- Raise what is used to at least a tab's cost, where the window is the one that was counted.

for i, tab in ipairs(call.tabs) do
    local used, window = read(tab)
    local is_same = kind_of(tab) == TOTAL
        or (kind_of(tab) == CALENDAR and window == call.since_ms[i])
    if is_same and used < cost_of(tab) then write(tab, cost_of(tab), window) end
end
return 1

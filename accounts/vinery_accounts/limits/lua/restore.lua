-- Raise what is used to at least a counter's cost: of a quota, if it is in the same window; of a
-- bucket, to what has not refilled since.

for i, counter in ipairs(call.counters) do
    local used, window = read(counter)
    local since, cost = call.since_ms[i], cost_of(counter)
    if kind_of(counter) == BUCKET then
        cost = used_after(counter, cost, since)
    elseif kind_of(counter) ~= TOTAL and not (kind_of(counter) == CALENDAR and window == since) then
        cost = 0
    end
    if used < cost then add(counter, used, cost - used, window) end
end
return 1

-- Reserve what a request costs, of all its rules or of none.
-- Returns {status, now, what is used of each rule, the indexes of rules that refuse, and the indexes
-- of those among them of which a lease holds some}. What is used includes the reservation if there
-- is one.

local EXISTS, DENIED, GRANTED = -1, 0, 1

if parts_of(call.lease) then return cmsgpack.pack({EXISTS}) end

local used, windows, refusing = {}, {}, {}
local is_denied = false
for i, counter in ipairs(call.counters) do
    used[i], windows[i] = read(counter)
    if cost_of(counter) > 0 and used[i] + cost_of(counter) > capacity_of(counter) then
        refusing[i] = true
        is_denied = is_denied or not is_shadow(counter)
    end
end

local indexes, held = {}, {}
for i in pairs(refusing) do
    indexes[#indexes + 1] = i - 1
    local holders = holders_of(call.counters[i])
    if is_denied and holders ~= '' and num_in(holders) > 0 then held[#held + 1] = i - 1 end
end
table.sort(indexes)
if is_denied then return cmsgpack.pack({DENIED, now, used, indexes, held}) end

local expires = now + call.ttl_ms
local parts = {}
for i, counter in ipairs(call.counters) do
    local cost, number = refusing[i] and 0 or cost_of(counter), 0
    if cost > 0 then
        if kind_of(counter) == CONCURRENCY then
            enter_slots(counter[1], call.id, expires, math.floor(cost / SCALE))
        else
            number = add(counter, used[i], cost, windows[i])
        end
    end
    local holders = holders_of(counter)
    if holders ~= '' and not refusing[i] then enter(holders, call.id, expires) end
    used[i] = used[i] + cost
    parts[i] = {windows[i], cost, cost, refusing[i] or false, number}
end
redis.call('HSET', call.lease, 'expires', expires, 'tabs', cmsgpack.pack(call.counters))
redis.call('PEXPIRE', call.lease, call.ttl_ms + REMEMBERED_MS)
keep(call.lease, parts)
return cmsgpack.pack({GRANTED, now, used, indexes, held})

-- Settle leases of dead processes: {lease key, id, actual costs by column} each. The record of the
-- lease has its rules. A settled lease has no record.

for _, dead in ipairs(call.leases) do
    local lease_key, id, costs = dead[1], dead[2], dead[3]
    local stored = redis.call('HMGET', lease_key, 'parts', 'tabs')
    if stored[1] and stored[2] then
        local parts, counters = cmsgpack.unpack(stored[1]), cmsgpack.unpack(stored[2])
        for i, counter in ipairs(counters) do
            settle(counter, id, parts[i], costs[column_of(counter) + 1])
        end
        redis.call('DEL', lease_key)
    end
end
return 1

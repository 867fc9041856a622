-- Settle leases of processes that died: {lease key, id, what was spent by column} each. The
-- lease itself knows its rules. One that was settled is not there any more.

for _, dead in ipairs(call.leases) do
    local lease_key, id, costs = dead[1], dead[2], dead[3]
    local stored = redis.call('HMGET', lease_key, 'parts', 'tabs')
    if stored[1] and stored[2] then
        local parts, tabs = cmsgpack.unpack(stored[1]), cmsgpack.unpack(stored[2])
        for i, tab in ipairs(tabs) do
            give_back(tab, id, parts[i], costs[column_of(tab) + 1])
        end
        redis.call('DEL', lease_key)
    end
end
return 1

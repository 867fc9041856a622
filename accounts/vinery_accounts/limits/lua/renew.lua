-- Keep leases alive: {id, lease key, keys of the sets that may contain it, its number of slots} each.

local expires = now + call.ttl_ms
for _, lease in ipairs(call.leases) do
    local id, lease_key, keys = lease[1], lease[2], lease[3]
    if parts_of(lease_key) then
        redis.call('HSET', lease_key, 'expires', expires)
        redis.call('PEXPIRE', lease_key, call.ttl_ms + REMEMBERED_MS)
        for _, key in ipairs(keys) do
            -- XX: a shadow rule may not have let the lease in.
            each_slot(id, lease[4] or 1, function(member)
                redis.call('ZADD', key, 'XX', expires, member)
            end)
            redis.call('PEXPIRE', key, call.ttl_ms + MARGIN_MS)
        end
    end
end
return 1

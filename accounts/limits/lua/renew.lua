-- Keep leases alive: {id, lease key, keys of the places it holds} each.

local expires = now + call.ttl_ms
for _, lease in ipairs(call.leases) do
    local id, lease_key, place_keys = lease[1], lease[2], lease[3]
    if parts_of(lease_key) then
        redis.call('HSET', lease_key, 'expires', expires)
        redis.call('PEXPIRE', lease_key, call.ttl_ms + REMEMBERED_MS)
        for _, key in ipairs(place_keys) do
            -- XX: a shadow rule may not have given it a place.
            redis.call('ZADD', key, 'XX', expires, id)
            redis.call('PEXPIRE', key, call.ttl_ms + MARGIN_MS)
        end
    end
end
return 1

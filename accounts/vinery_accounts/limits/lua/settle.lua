-- Replace what a lease has reserved by the actual costs, and delete the lease. A counter's cost is
-- the actual one. A window that is over stays as it is. An expired lease is settled, too: its
-- process may live, and could not renew it.

local stored = redis.call('HGET', call.lease, 'parts')
if not stored then return 0 end

local parts = cmsgpack.unpack(stored)

for i, counter in ipairs(call.counters) do settle(counter, call.id, parts[i], cost_of(counter)) end
redis.call('DEL', call.lease)
return 1

-- Replace what a lease has reserved by what was spent, and forget the lease. A tab's cost is
-- what was spent of it. A window that is over is left as it is. A lease that has expired is
-- settled all the same: its process may live, and could not be heard.

local stored = redis.call('HGET', call.lease, 'parts')
if not stored then return 0 end

local parts = cmsgpack.unpack(stored)

for i, tab in ipairs(call.tabs) do give_back(tab, call.id, parts[i], cost_of(tab)) end
redis.call('DEL', call.lease)
return 1

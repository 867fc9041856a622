-- Replace what a lease has reserved by what was spent, and forget the lease. A tab's cost is
-- what was spent of it. A window that is over is left as it is.

local parts = parts_of(call.lease)
if not parts then return 0 end

for i, tab in ipairs(call.tabs) do give_back(tab, call.id, parts[i], cost_of(tab)) end
redis.call('DEL', call.lease)
return 1

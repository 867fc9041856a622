-- Reserve what a claim costs, of all its rules or of none.
-- Answers {status, now, what is used of each rule, the places of those that refuse, and of those
-- among them of which somebody holds some}; what is used is told after a reservation, and
-- before it where there was none.

local EXISTS, DENIED, GRANTED = -1, 0, 1

if parts_of(call.lease) then return cmsgpack.pack({EXISTS}) end

local used, windows, refusing = {}, {}, {}
local is_denied = false
for i, tab in ipairs(call.tabs) do
    used[i], windows[i] = read(tab)
    if cost_of(tab) > 0 and used[i] + cost_of(tab) > capacity_of(tab) then
        refusing[i] = true
        is_denied = is_denied or not is_shadow(tab)
    end
end

local places, held = {}, {}
for i in pairs(refusing) do
    places[#places + 1] = i - 1
    local holders = holders_of(call.tabs[i])
    if is_denied and holders ~= '' and num_in(holders) > 0 then held[#held + 1] = i - 1 end
end
table.sort(places)
if is_denied then return cmsgpack.pack({DENIED, now, used, places, held}) end

local expires = now + call.ttl_ms
local parts = {}
for i, tab in ipairs(call.tabs) do
    local cost, number = refusing[i] and 0 or cost_of(tab), 0
    if cost > 0 then
        if kind_of(tab) == PLACES then
            enter(tab[1], call.id, expires)
        else
            number = add(tab, used[i], cost, windows[i])
        end
    end
    if holders_of(tab) ~= '' and not refusing[i] then enter(holders_of(tab), call.id, expires) end
    used[i] = used[i] + cost
    parts[i] = {windows[i], cost, cost, refusing[i] or false, number}
end
redis.call('HSET', call.lease, 'expires', expires, 'tabs', cmsgpack.pack(call.tabs))
redis.call('PEXPIRE', call.lease, call.ttl_ms + REMEMBERED_MS)
keep(call.lease, parts)
return cmsgpack.pack({GRANTED, now, used, places, held})

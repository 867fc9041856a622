-- Return what is used of each rule: {now, used}.

local used = {}
for i, counter in ipairs(call.counters) do used[i] = read(counter) end
return cmsgpack.pack({now, used})

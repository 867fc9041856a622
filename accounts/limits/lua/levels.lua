-- What is used of each rule: {now, used}.

local used = {}
for i, tab in ipairs(call.tabs) do used[i] = read(tab) end
return cmsgpack.pack({now, used})

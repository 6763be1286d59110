-- For wrk: each request asks for what is newer than the newest answer so far.
local known = "0"

function request()
  return wrk.format("GET", nil, {["If-None-Match"] = '"' .. known .. '"', ["Prefer"] = "wait=30"})
end

function response(status, headers, body)
  known = body
end

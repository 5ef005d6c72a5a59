-- What became of steps that went together, in a letter for each. Most went the same way, and only
-- the others were written down.
local function spelled(letters, count, most)
  for at = 1, count do
    letters[at] = letters[at] or most
  end
  return table.concat(letters)
end

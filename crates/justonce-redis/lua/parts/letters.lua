-- The results of a batch, a letter for each step. Only the uncommon ones were recorded.
local function all_letters(letters, count, common)
  for at = 1, count do
    letters[at] = letters[at] or common
  end
  return table.concat(letters)
end

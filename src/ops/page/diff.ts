/** One line of the two texts: in both, only in the first, only in the second. */
export interface DiffLine {
  kind: 'same' | 'removed' | 'added'
  text: string
}

/** Above this the lines in the middle are shown as all removed and all added: the comparison takes the product of both. */
const MOST_COMPARED = 1_000

/** What changed between two texts, line by line: as many lines as possible are the same. */
export function diffOf(before: string, after: string): DiffLine[] {
  const old = before.split('\n')
  const fresh = after.split('\n')
  let start = 0
  while (start < old.length && start < fresh.length && old[start] === fresh[start]) start += 1
  let end = 0
  while (end < old.length - start && end < fresh.length - start && old.at(-1 - end) === fresh.at(-1 - end)) end += 1
  const same = (text: string): DiffLine => ({ kind: 'same', text })
  return [
    ...old.slice(0, start).map(same),
    ...middleOf(old.slice(start, old.length - end), fresh.slice(start, fresh.length - end)),
    ...old.slice(old.length - end).map(same),
  ]
}

function middleOf(old: readonly string[], fresh: readonly string[]): DiffLine[] {
  const removed = (text: string): DiffLine => ({ kind: 'removed', text })
  const added = (text: string): DiffLine => ({ kind: 'added', text })
  if (old.length > MOST_COMPARED || fresh.length > MOST_COMPARED) return [...old.map(removed), ...fresh.map(added)]
  // longest[i][j]: how many lines old[i..] and fresh[j..] can have in common.
  const longest = Array.from({ length: old.length + 1 }, () => new Uint16Array(fresh.length + 1))
  const at = (i: number, j: number) => longest[i]?.[j] ?? 0
  for (let i = old.length - 1; i >= 0; i -= 1) {
    const row = longest[i]
    for (let j = fresh.length - 1; row && j >= 0; j -= 1)
      row[j] = old[i] === fresh[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1))
  }
  const lines: DiffLine[] = []
  let i = 0
  let j = 0
  while (i < old.length || j < fresh.length) {
    const [one = '', other = ''] = [old[i], fresh[j]]
    if (i < old.length && j < fresh.length && one === other) {
      lines.push({ kind: 'same', text: one })
      i += 1
      j += 1
    } else if (j >= fresh.length || (i < old.length && at(i + 1, j) >= at(i, j + 1))) {
      lines.push(removed(one))
      i += 1
    } else {
      lines.push(added(other))
      j += 1
    }
  }
  return lines
}

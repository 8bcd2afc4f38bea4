const SPACES = '  '
/** Deeper than this the indent stays the same: a body of nothing but brackets would grow with the square of its length. */
const DEEPEST_INDENT = 20

const OPENING = new Set(['{', '['])
const CLOSING = new Set(['}', ']'])
const BLANK = /[ \t\n\r]/

/**
 * A JSON text with line breaks and indents between its tokens. The tokens stay as they were sent: numbers with every digit, escapes,
 * doubled names and their order. Undefined where the text doesn't read as JSON.
 */
export function indented(text: string): string | undefined {
  const trimmed = text.trim()
  if (!/^[{[]/.test(trimmed)) return undefined
  let depth = 0
  let written = ''
  let at = 0
  const breakLine = () => {
    written += `\n${SPACES.repeat(Math.min(depth, DEEPEST_INDENT))}`
  }
  while (at < trimmed.length) {
    const character = trimmed[at] ?? ''
    if (character === '"') {
      const end = endOfString(trimmed, at)
      if (end === undefined) return undefined
      written += trimmed.slice(at, end)
      at = end
      continue
    }
    at += 1
    if (BLANK.test(character)) continue
    if (OPENING.has(character)) {
      written += character
      const next = nextToken(trimmed, at)
      if (CLOSING.has(trimmed[next] ?? '')) {
        written += trimmed[next]
        at = next + 1
        continue
      }
      depth += 1
      breakLine()
    } else if (CLOSING.has(character)) {
      depth -= 1
      if (depth < 0) return undefined
      breakLine()
      written += character
    } else if (character === ',') {
      written += character
      breakLine()
    } else written += character === ':' ? ': ' : character
  }
  return depth === 0 ? written : undefined
}

/** Where the string that begins here ends. */
function endOfString(text: string, from: number): number | undefined {
  for (let at = from + 1; at < text.length; at += 1) {
    if (text[at] === '\\') at += 1
    else if (text[at] === '"') return at + 1
  }
  return undefined
}

function nextToken(text: string, from: number): number {
  let at = from
  while (BLANK.test(text[at] ?? '')) at += 1
  return at
}

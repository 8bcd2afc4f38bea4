import { parseExactly } from './json.ts'

type BodyCause = 'body_newline' | 'body_charset' | 'body_reserialized'

/** With an indent each value takes its level again: what is nested deeper is not printed, as it could come to a hundred times its size. */
const MOST_LEVELS = 20

/**
 * What the body may have been before something on the way changed it, the likely forms first; `words` says how it differs. `isOver`
 * is asked before each form is made, as that may cost more than trying it.
 */
export function* bodyForms(body: Buffer, isOver: () => boolean): Generator<{ cause: BodyCause; body: Buffer; words: string }> {
  const seen = new Set([body.toString('latin1')])
  for (const [cause, words, bytes] of changedBodies(body, isOver)) {
    const key = bytes.toString('latin1')
    if (!seen.has(key)) {
      seen.add(key)
      yield { cause, body: bytes, words }
    }
    if (isOver()) return
  }
}

function* changedBodies(body: Buffer, isOver: () => boolean): Generator<[BodyCause, string, Buffer]> {
  // As Latin-1 each character is one byte, whatever the bytes are.
  const text = body.toString('latin1')
  const bytes = (changed: string) => Buffer.from(changed, 'latin1')
  yield ['body_newline', 'with a line break (LF) at its end', bytes(`${text}\n`)]
  yield ['body_newline', 'with a line break (CR LF) at its end', bytes(`${text}\r\n`)]
  yield ['body_newline', 'without the line break at its end', bytes(text.replace(/\r?\n$/, ''))]
  yield ['body_newline', 'without white space at its ends', bytes(text.trim())]
  yield ['body_newline', 'with LF for its line breaks', bytes(text.replaceAll('\r\n', '\n'))]
  yield ['body_newline', 'with CR LF for its line breaks', bytes(text.replace(/\r?\n/g, '\r\n'))]

  const bom = '\u00ef\u00bb\u00bf'
  if (text.startsWith(bom)) yield ['body_charset', 'without the byte order mark', bytes(text.slice(bom.length))]
  else yield ['body_charset', 'with a byte order mark', bytes(bom + text)]
  const narrow = [Buffer.from(body.toString(), 'latin1'), windows1252Of(body.toString())]
  for (const [index, label] of ['Latin-1', 'Windows-1252'].entries()) {
    const read = index === 0 ? text : windows1252.decode(body)
    if (narrow[index]) yield ['body_charset', `in ${label} instead of UTF-8`, narrow[index]]
    yield ['body_charset', `read as ${label} and written as UTF-8`, Buffer.from(read)]
  }
  for (const [words, printed] of printedBodies(body, isOver)) yield ['body_reserialized', words, Buffer.from(printed)]
}

const windows1252 = new TextDecoder('windows-1252')
const codes = new Map(Array.from({ length: 256 }, (_, code): [string, number] => [windows1252.decode(Uint8Array.of(code)), code]))

/** Undefined where the text has other letters. */
function windows1252Of(text: string): Buffer | undefined {
  const bytes = Array.from(text, (letter) => codes.get(letter) ?? -1)
  return bytes.includes(-1) ? undefined : Buffer.from(bytes)
}

type Print = (value: unknown) => string

/** How common libraries print JSON: JavaScript, Python's `json`, PHP's and Java's. Line breaks stand between values only. */
const SPACINGS: readonly [string, Print][] = [
  ['printed without white space', (value) => JSON.stringify(value)],
  ['printed with an indent of 2 spaces', (value) => JSON.stringify(value, undefined, 2)],
  [
    'printed with a space after each comma and colon',
    (value) => JSON.stringify(value, undefined, 1).replace(/,\n */g, ', ').replace(/\n */g, ''),
  ],
  ['printed with an indent of 4 spaces', (value) => JSON.stringify(value, undefined, 4)],
  ['printed with an indent of tabs', (value) => JSON.stringify(value, undefined, '\t')],
]
const unicodeEscape = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
const ascii = (text: string) => text.replace(/[\u0080-\uffff]/g, unicodeEscape)
const slashes = (text: string) => text.replaceAll('/', '\\/')
const ESCAPES: readonly [string, (text: string) => string][] = [
  ['', (text) => text],
  [' and letters beyond ASCII as escapes', ascii],
  [' and letters beyond ASCII and slashes as escapes', (text) => slashes(ascii(text))],
  [' and slashes as escapes', slashes],
  [' and <, > and & as escapes', (text) => text.replace(/[<>&\u2028\u2029]/g, unicodeEscape)],
]

function* printedBodies(body: Buffer, isOver: () => boolean): Generator<[string, string]> {
  const exact = parseExactly(body)
  if (exact === undefined) {
    const text = body.toString()
    if (!/^[^\s=&{[<"]+=/.test(text)) return
    const form = new URLSearchParams(text).toString()
    yield ['encoded anew as a form', form]
    yield ['encoded anew as a form, with %20 for blanks', form.replaceAll('+', '%20')]
    return
  }
  if (isOver()) return
  const compact = JSON.stringify(exact)
  const asDoubles: unknown = JSON.parse(compact)
  if (!isWithin(asDoubles, MOST_LEVELS)) return
  const values: [string, unknown][] = [['', exact]]
  if (JSON.stringify(asDoubles) !== compact) values.push([', its numbers as JavaScript writes them', asDoubles])
  for (const [escapes, rewrite] of ESCAPES) {
    if (isOver()) return
    // Nothing to escape: the forms would be those before.
    if (escapes !== '' && rewrite(compact) === compact) continue
    for (const [numbers, value] of values) {
      for (const [spacing, print] of SPACINGS) yield [`${spacing}${escapes}${numbers}`, rewrite(print(value))]
    }
  }
}

function isWithin(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return true
  return levels > 0 && Object.values(value).every((item) => isWithin(item, levels - 1))
}

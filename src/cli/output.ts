import type { CommandResult } from '../cli.ts'
import { countText, type Label } from '../ops/words.ts'

/** How the command's output is wanted. */
export interface OutputOptions {
  json?: boolean | undefined
  /** Columns of the terminal; none when the output goes into a pipe or a file. */
  width?: number | undefined
  color?: boolean | undefined
  /** Whether the terminal shows more than ASCII. */
  unicode?: boolean | undefined
  /** The zone of the times for people; UTC without it. */
  zone?: string | undefined
}

/** A table's cell; a tone colours it, and a figure stands at the right. */
export interface Cell {
  text: string
  tone?: Label['tone']
  isFigure?: boolean
}

const GAP = '  '
const SHORTEST = 8
// Control, format (bidi, zero width), fillers, line and paragraph separators: what could move, hide or colour other text.
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu
const NOT_ASCII = /[^\0-\x7f]/gu
const WIDE =
  /\p{Emoji_Presentation}|[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]/u
const ansi: Record<Label['tone'], number> = { quiet: 90, busy: 36, good: 32, bad: 31, ask: 33 }
const graphemes = new Intl.Segmenter()

/** Text of strangers on one line, with every character that a terminal would obey shown by its number instead. */
export function visible(text: string): string {
  return text.toWellFormed().replace(INVISIBLE, byNumber)
}

const byNumber = (character: string) => `<U+${character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0')}>`
const escaped = (character: string) =>
  character
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('')

/**
 * The API's own object; characters that a terminal would obey are written as JSON's escapes, which changes no value. An integer that
 * a double doesn't hold is a string.
 */
export function jsonOutput(value: unknown): string {
  const text = JSON.stringify(
    value,
    (_name, inner: unknown) => {
      const isExact = typeof inner !== 'bigint' && (!Number.isInteger(inner) || Number.isSafeInteger(inner))
      return isExact ? inner : String(inner)
    },
    2,
  )
  return `${text.replace(INVISIBLE, (character) => (character === '\n' ? character : escaped(character)))}\n`
}

const ascii: Record<string, string> = {
  '→': '->',
  '…': '...',
  '·': '-',
  '–': '-',
  '✓': '+',
  '✕': 'x',
  '█': '#',
  '░': '.',
  '×': 'x',
}

/** Our own words for a terminal that only knows ASCII. */
export function words(text: string, { unicode }: OutputOptions): string {
  return unicode ? text : text.replace(NOT_ASCII, (character) => ascii[character] ?? character)
}

/** All of an output for a terminal that only knows ASCII: there the bytes of other characters may be commands. */
export function asciiOnly(text: string, isJson: boolean): string {
  return text.replace(NOT_ASCII, (character) => (isJson ? escaped(character) : (ascii[character] ?? byNumber(character))))
}

const marks = { good: '✓', ask: '!', bad: '✕' } as const

/** A line that begins with how it went. */
export function mark(tone: keyof typeof marks, text: string, options: OutputOptions): string {
  return painted({ text: words(`${marks[tone]} ${visible(text)}`, options), tone }, options)
}

/** The icon and the word of a status. */
export function tag({ word, icon, ascii, tone }: Label, { unicode }: OutputOptions): Cell {
  return { text: `${unicode ? icon : ascii} ${word}`, tone }
}

/** Colours a text, if colours are wanted. */
export function painted({ text, tone }: Cell, { color }: OutputOptions): string {
  return color && tone !== undefined ? `\u001b[${ansi[tone]}m${text}\u001b[0m` : text
}

/** Tab-separated values, one row a line, for pipes. */
export function tabSeparated(rows: readonly (readonly (string | null)[])[]): string {
  return rows.map((row) => `${row.map((value) => visible(value ?? '')).join('\t')}\n`).join('')
}

/** A table that fits the width; the columns named in `shrink` give way first, their cells shortened in the middle. */
export function table(
  headers: readonly string[],
  rows: readonly (readonly Cell[])[],
  shrink: readonly number[],
  options: OutputOptions,
): string {
  const lines = [
    headers.map((text): Cell => ({ text })),
    ...rows.map((row) =>
      row.map(({ text, ...cell }) => ({ ...cell, text: options.unicode ? visible(text) : asciiOnly(visible(text), false) })),
    ),
  ]
  const isFigure = headers.map((_, column) => rows.length > 0 && rows.every((row) => row[column]?.isFigure === true))
  const widths = headers.map((_, column) => Math.max(...lines.map((line) => columnsOf(line[column]?.text ?? ''))))
  const gaps = GAP.length * (widths.length - 1)
  for (const [columns, least] of [
    [shrink, SHORTEST],
    [[...headers.keys()], 1],
  ] as const) {
    while (gaps + widths.reduce((sum, width) => sum + width, 0) > (options.width ?? Number.POSITIVE_INFINITY)) {
      // The widest gives way first, so that no column pays for another's length.
      const widest = columns.reduce((one, other) => ((widths[other] ?? 0) > (widths[one] ?? 0) ? other : one), columns[0] ?? 0)
      if ((widths[widest] ?? 0) <= least) break
      widths[widest] = (widths[widest] ?? 0) - 1
    }
  }
  const written = lines.map((line) =>
    line
      .map((cell, column) => {
        const text = shortened(cell.text, widths[column] ?? 0, options)
        const padding = ' '.repeat((widths[column] ?? 0) - columnsOf(text))
        if (isFigure[column]) return padding + painted({ ...cell, text }, options)
        return painted({ ...cell, text }, options) + (column === line.length - 1 ? '' : padding)
      })
      .join(GAP)
      .trimEnd(),
  )
  return `${written.join('\n')}\n`
}

/** A text in at most so many columns: its middle gives way, as the ends of a key tell most. */
export function shortened(text: string, width: number, options: OutputOptions): string {
  if (columnsOf(text) <= width) return text
  const ellipsis = words('…', options)
  const room = width - ellipsis.length
  if (room < 2) return takeColumns(text, width)
  const reversed = [...graphemes.segment(text)]
    .map(({ segment }) => segment)
    .reverse()
    .join('')
  const tail = [...graphemes.segment(takeColumns(reversed, Math.floor(room / 2)))]
    .map(({ segment }) => segment)
    .reverse()
    .join('')
  return takeColumns(text, Math.ceil(room / 2)) + ellipsis + tail
}

function takeColumns(text: string, width: number): string {
  let taken = ''
  let used = 0
  for (const { segment } of graphemes.segment(text)) {
    used += WIDE.test(segment) ? 2 : 1
    if (used > width) break
    taken += segment
  }
  return taken
}

const columnsOf = (text: string) =>
  [...graphemes.segment(text)].reduce((sum, { segment }) => sum + (WIDE.test(segment) ? 2 : 1), 0)

/** What is wrong with the options; nothing was done. */
export function usageError(problems: readonly { path: string; message: string }[]): CommandResult {
  const stderr = problems.map(({ path, message }) => `oncehook: --${path.split('.')[0]?.replaceAll('_', '-')}: ${message}\n`)
  return { stdout: '', stderr: stderr.join(''), exitCode: 2 }
}

/** The foot of a list, for people. */
export function listHint(count: number, one: string, cursor: string | null, { json, ...options }: OutputOptions): string {
  if (json) return ''
  if (count === 0) return `No ${one} matches.\n`
  return words(`${manyText(count, one)}${cursor === null ? '' : ` · more: --cursor ${cursor}`}\n`, options)
}

/** `1 send`, `1,204 sends`. */
export const manyText = (count: number, one: string): string => `${countText(count)} ${one}${count === 1 ? '' : 's'}`

import { createHash } from 'node:crypto'

/** One record of a file: its first line's number from 1, the hash of its text without the line break, and its cells. */
export interface CsvRecord {
  line: number
  sha256: string
  cells: string[]
}

/** The file is no CSV as RFC 4180 has it, or too large; the text says where. */
export class CsvError extends Error {
  override name = 'CsvError'
}

const MOST_BYTES = 200_000_000
const LONGEST_RECORD = 65_536
const DELIMITERS = [',', ';', '\t']

/**
 * Reads a CSV file piece by piece, strictly: what can't be told to be one cell or two is an error, not a guess. Its delimiter is
 * the one of `,`, `;` and tab that its first line has most of; each record must have as many cells as that one.
 */
export async function* readCsv(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<CsvRecord> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  let delimiter: string | undefined
  let width = 0
  let bytes = 0
  let text = ''
  let scanned = 0
  let isQuoted = false
  let line = 1
  let firstLine = 1

  const decode = (chunk?: Uint8Array): string => {
    try {
      return decoder.decode(chunk, { stream: chunk !== undefined })
    } catch {
      throw new CsvError('not in UTF-8')
    }
  }
  const read = (raw: string): CsvRecord | undefined => {
    if (raw.length > LONGEST_RECORD)
      throw new CsvError(`line ${firstLine} is longer than ${LONGEST_RECORD} characters, or a quote in it is not closed`)
    if (raw === '') return undefined
    delimiter ??= delimiterOf(raw)
    const cells = cellsOf(raw, delimiter, firstLine)
    width ||= cells.length
    if (cells.length !== width) throw new CsvError(`line ${firstLine} has ${cells.length} cells, but the first one has ${width}`)
    return { line: firstLine, sha256: createHash('sha256').update(raw).digest('hex'), cells }
  }

  for await (const chunk of chunks) {
    bytes += chunk.length
    if (bytes > MOST_BYTES) throw new CsvError(`larger than ${MOST_BYTES} bytes: split it`)
    text += decode(chunk)
    let start = 0
    for (; scanned < text.length; scanned += 1) {
      const character = text[scanned]
      if (character === '"') isQuoted = !isQuoted
      if (character !== '\n') continue
      line += 1
      if (isQuoted) continue
      const record = read(text.slice(start, scanned).replace(/\r$/, ''))
      if (record) yield record
      start = scanned + 1
      firstLine = line
    }
    text = text.slice(start)
    scanned -= start
    if (text.length > LONGEST_RECORD) read(text)
  }
  text += decode()
  const last = read(text.replace(/\r$/, ''))
  if (last) yield last
}

function delimiterOf(header: string): string {
  const outside = header.replace(/"[^"]*"/g, '')
  const count = (delimiter: string) => outside.split(delimiter).length
  return DELIMITERS.reduce((one, other) => (count(other) > count(one) ? other : one))
}

function cellsOf(raw: string, delimiter: string, line: number): string[] {
  const cells: string[] = []
  for (let at = 0; ; ) {
    if (raw[at] === '"') {
      let cell = ''
      for (;;) {
        const end = raw.indexOf('"', at + 1)
        if (end < 0) throw new CsvError(`a quote in line ${line} is not closed`)
        cell += raw.slice(at + 1, end)
        at = end + 1
        if (raw[at] !== '"') break
        cell += '"'
      }
      if (at < raw.length && raw[at] !== delimiter) throw new CsvError(`line ${line} has text behind a closing quote`)
      cells.push(cell)
    } else {
      const next = raw.indexOf(delimiter, at)
      const cell = raw.slice(at, next < 0 ? raw.length : next)
      if (/["\r]/.test(cell)) throw new CsvError(`line ${line} has a quote or a line break in a cell without quotes`)
      cells.push(cell)
      at += cell.length
    }
    if (at >= raw.length) return cells
    at += 1
  }
}

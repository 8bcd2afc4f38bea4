import { createHash } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { readCsv } from './csv.ts'
import { type Columns, chooseColumns, type LogField, type LogLine, readLogLine } from './sending-log.ts'

const MOST_LINES = 200_000
/** The process that reads a log answers others, too. */
const LINES_A_TURN = 50

/** A sending log as it was read in. */
export interface SendingLog {
  sha256: string
  header: string[]
  columns: Columns
  lines: LogLine[]
}

/** Reads a whole sending log, its columns by the given names or else by its header. Throws CsvError where it is no CSV. */
export async function readSendingLog(
  chunks: AsyncIterable<Uint8Array>,
  given: Partial<Record<LogField, string>>,
  zone: string,
  howToName?: (field: LogField) => string,
): Promise<SendingLog | { problem: string }> {
  const hash = createHash('sha256')
  async function* hashed() {
    for await (const chunk of chunks) {
      hash.update(chunk)
      yield chunk
    }
  }
  let header: string[] | undefined
  let columns: Columns = {}
  const lines: LogLine[] = []
  for await (const record of readCsv(hashed())) {
    if (header) lines.push(readLogLine(record, columns, zone))
    else {
      const chosen = chooseColumns(record.cells, given, howToName)
      if ('problems' in chosen) return { problem: chosen.problems.join('; ') }
      header = record.cells
      columns = chosen.columns
    }
    if (lines.length % LINES_A_TURN === 0) await nextTurn()
    if (lines.length > MOST_LINES) return { problem: `more than ${MOST_LINES} lines: split it` }
  }
  return header ? { sha256: hash.digest('hex'), header, columns, lines } : { problem: 'is empty' }
}

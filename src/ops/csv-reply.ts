import type { Export } from './csv-export.ts'
import type { OtherReply } from './route.ts'

/** What a list says of its other form. */
export const asCsv = {
  'text/csv':
    'The whole list from `cursor` on, whatever its `limit`: RFC 4180 in UTF-8 with a byte order mark. A cell that begins with `=`, `+`, `-`, `@`, tab or CR gets a leading apostrophe. That somebody has it is audited',
}

/** A list as CSV, to be kept as a file. */
export function csvReply(list: Export['list'], content: AsyncIterable<string>): OtherReply {
  const headers = { 'Content-Disposition': `attachment; filename="${list}.csv"` }
  return { status: 200, type: 'text/csv; charset=utf-8', content, headers }
}

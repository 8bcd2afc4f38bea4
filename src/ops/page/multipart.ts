import type { Request } from 'express'

/** More than any form of ours has. */
const MOST_PARTS = 20
const MOST_HEADER_BYTES = 2_000
const LINE = Buffer.from('\r\n')
const HEADERS_END = Buffer.from('\r\n\r\n')

/**
 * The fields of a form that carries files, each file as its bytes within the body; empty where it can't be read, or has more than 20. Its
 * bytes are searched for the boundary only, and copied nowhere.
 */
export function multipartFields(req: Request): Record<string, unknown> {
  const [, quoted, bare] =
    /^multipart\/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))/i.exec(req.get('content-type') ?? '') ??
    []
  const boundary = quoted ?? bare
  const body: unknown = req.body
  return boundary !== undefined && Buffer.isBuffer(body) ? (partsOf(body, boundary) ?? {}) : {}
}

function partsOf(body: Buffer, boundary: string): Record<string, unknown> | undefined {
  const opening = Buffer.from(`--${boundary}`)
  const delimiter = Buffer.concat([LINE, opening])
  if (!body.subarray(0, opening.length).equals(opening)) return undefined
  const fields: [string, string | Buffer][] = []
  let from = opening.length
  // After each boundary two characters say whether it is the last.
  while (!body.subarray(from, from + 2).equals(Buffer.from('--'))) {
    if (fields.length === MOST_PARTS || !body.subarray(from, from + 2).equals(LINE)) return undefined
    const head = body.subarray(from, from + MOST_HEADER_BYTES)
    const length = head.indexOf(HEADERS_END)
    const start = from + length + HEADERS_END.length
    const end = length < 0 ? -1 : body.indexOf(delimiter, start)
    if (end < 0) return undefined
    const disposition = /^content-disposition:\s*form-data;(.*)$/im.exec(head.toString('utf8', 0, length))?.[1] ?? ''
    const name = /(?:^|;)\s*name="([^"]*)"/i.exec(disposition)?.[1]
    if (name === undefined) return undefined
    const content = body.subarray(start, end)
    fields.push([name, /;\s*filename\*?=/i.test(disposition) ? content : content.toString('utf8')])
    from = end + delimiter.length
  }
  return Object.fromEntries(fields)
}

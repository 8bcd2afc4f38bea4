import type pg from 'pg'

/** A parameter: bytes and times go in PostgreSQL's binary form, all else as its text. */
export type Parameter = string | number | boolean | Date | Buffer | null

/** A row that a prepared statement returns: the texts of its columns, none of which may be null. */
export type TextRow = readonly string[]

/**
 * Runs a statement of the ack path, prepared once for each connection, and resolves with its rows; rejects as the library's own queries do.
 * For what that one is dear at: hundreds of parameters, or large ones. It copies them again and again into a message that grows, and asks
 * what the columns are each time. What the statement held is let go of here, not when pg's callback is (ADR 9).
 */
export async function runPrepared(
  pool: pg.Pool,
  { name, text, values }: { name: string; text: string; values: readonly Parameter[] },
): Promise<readonly TextRow[]> {
  const prepared = new Prepared(name, text, bindMessage(name, values))
  try {
    // A pool answers with a promise whatever the query is; its types know that of the library's own only.
    await (pool.query(prepared) as unknown as Promise<void>)
    return prepared.rows
  } finally {
    prepared.letGo()
  }
}

/** The texts of the statements that a connection has prepared. */
interface Preparing extends pg.Connection {
  parsedStatements: Record<string, string | undefined>
}

/** The library calls these by name as the answers to a query come in. */
class Prepared implements pg.Submittable {
  readonly name: string
  readonly text: string
  rows: TextRow[] = []
  callback?: (error?: Error | null) => void
  #message: readonly Buffer[]

  /** `message` gives the parameters. It is made before there is a connection, which could not be used any more if that failed. */
  constructor(name: string, text: string, message: readonly Buffer[]) {
    this.name = name
    this.text = text
    this.#message = message
  }

  submit(connection: pg.Connection): Error | undefined {
    const prepared = (connection as Preparing).parsedStatements[this.name]
    if (prepared !== undefined && prepared !== this.text) return new Error(`${this.name} is another prepared statement`)
    connection.stream.cork()
    if (prepared === undefined) connection.parse({ name: this.name, text: this.text, types: [] }, false)
    for (const piece of this.#message) connection.stream.write(piece)
    connection.execute(null, false)
    connection.sync()
    connection.stream.uncork()
    return undefined
  }

  letGo(): void {
    this.#message = []
    this.rows = []
  }

  handleDataRow({ fields }: { fields: TextRow }): void {
    this.rows.push(fields)
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {
    this.callback?.()
  }

  handleError(error: Error): void {
    this.callback?.(error)
  }
}

/** A parameter of this many bytes is sent from where it lies; a smaller one is copied faster than it is looked after. */
const COPIED_BELOW = 16 * 1024
const EPOCH_MS = Date.UTC(2000, 0, 1)

/**
 * The message that gives a prepared statement its parameters, in pieces (Bind, in "Frontend/Backend Protocol" of PostgreSQL's
 * documentation). Its columns come as texts.
 */
function bindMessage(statement: string, values: readonly Parameter[]): Buffer[] {
  // Room for each text as if all of its characters were of three bytes; a number has 25 characters at most.
  let room = 16 + 3 * statement.length
  let apart = 0
  for (const value of values) {
    room += 6
    if (typeof value === 'string') room += 3 * value.length
    else if (!(value instanceof Buffer)) room += value === null ? 0 : 25
    else if (value.length < COPIED_BELOW) room += value.length
    else apart += value.length
  }
  const bytes = Buffer.allocUnsafe(room)
  let at = 5
  bytes[0] = 0x42
  at += bytes.write(`\0${statement}\0`, at)
  at = bytes.writeUInt16BE(values.length, at)
  for (const value of values) {
    bytes[at] = 0
    bytes[at + 1] = typeof value === 'object' && value !== null ? 1 : 0
    at += 2
  }
  at = bytes.writeUInt16BE(values.length, at)
  const pieces: Buffer[] = []
  let from = 0
  for (const value of values) {
    if (value === null) {
      at = bytes.writeInt32BE(-1, at)
    } else if (value instanceof Buffer) {
      at = bytes.writeInt32BE(value.length, at)
      if (value.length < COPIED_BELOW) {
        bytes.set(value, at)
        at += value.length
      } else {
        pieces.push(bytes.subarray(from, at), value)
        from = at
      }
    } else if (value instanceof Date) {
      at = bytes.writeInt32BE(8, at)
      at = bytes.writeBigInt64BE(BigInt(value.getTime() - EPOCH_MS) * 1000n, at)
    } else {
      const size = bytes.write(typeof value === 'string' ? value : String(value), at + 4)
      at = bytes.writeInt32BE(size, at) + size
    }
  }
  at = bytes.writeInt16BE(0, at)
  bytes.writeInt32BE(at - 1 + apart, 1)
  pieces.push(bytes.subarray(from, at))
  return pieces
}

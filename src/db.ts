import pg from 'pg'

/** Anything that runs one statement: a pool, a connection, or the transaction of somebody else. */
export interface Db {
  query<Row extends pg.QueryResultRow = pg.QueryResultRow>(
    config: string | pg.QueryConfig,
    values?: readonly unknown[],
  ): Promise<pg.QueryResult<Row>>
}

declare const insideTransaction: unique symbol

/** A connection inside an open transaction: what takes it can't be called with a pool. */
export interface Tx extends Db {
  readonly [insideTransaction]: true
}

export interface PoolOptions {
  url: string
  name: string
  max: number
  /** Milliseconds that the server gives one statement. */
  statementTimeout?: number
  /** Milliseconds to wait for a connection; 1 s, as somebody waits for the answer. */
  connectionTimeout?: number
  /** One statement at a time takes one processor only, and none is spent on compiling it. */
  isFrugal?: boolean
}

/** A pool whose waits are bounded: a connection and a statement come within their timeouts, or an error does. */
export function openPool({
  url,
  name,
  max,
  statementTimeout = 10_000,
  connectionTimeout = 1_000,
  isFrugal = false,
}: PoolOptions): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    application_name: name,
    max,
    connectionTimeoutMillis: connectionTimeout,
    statement_timeout: statementTimeout,
    // A server that no longer answers at all: the client gives up a little later than the server would have.
    query_timeout: statementTimeout + 1_000,
    idle_in_transaction_session_timeout: 30_000,
    keepAlive: true,
    ...(isFrugal && { options: '-c max_parallel_workers_per_gather=0 -c jit=off' }),
  })
  // An idle connection that the server closes is replaced by the pool; without a listener it would end the process.
  pool.on('error', () => undefined)
  // One that is handed out may be ended before its holder could listen. The failing query says so too, and is looked at.
  pool.on('connect', (client) => client.on('error', () => undefined))
  return pool
}

/**
 * Runs one statement of the ack path, and lets go of its values and rows once these are read. pg makes its callback of a query by assigning
 * a function literal to a property, which V8 allocates among what is old: until the whole heap is cleaned it keeps alive all that the query holds.
 */
export async function queryBriefly<Row extends pg.QueryResultRow, Result>(
  db: Db,
  query: { name: string; text: string; values: unknown[] },
  read: (rows: readonly Row[]) => Result,
): Promise<Result> {
  try {
    const { rows } = await db.query<Row>(query)
    const result = read(rows)
    rows.length = 0
    return result
  } finally {
    query.values.length = 0
  }
}

/**
 * Runs work in one transaction: committed when it returns, rolled back when it throws. A connection whose state is in
 * doubt (a failed commit or rollback) is closed, never reused.
 */
export async function inTransaction<Result>(pool: pg.Pool, work: (tx: Tx) => Promise<Result>): Promise<Result> {
  const client = await pool.connect()
  let broken = true
  try {
    // Whatever the server's default is: a lock taken by one statement must let the next one see what it waited for.
    await client.query('begin isolation level read committed')
    const result = await work(client as unknown as Tx)
    // PostgreSQL answers the commit of a transaction that a statement has broken with a rollback, not with an error.
    const { command } = await client.query('commit')
    if (command !== 'COMMIT') throw new Error('the transaction was rolled back: a failed statement in it went unnoticed')
    broken = false
    return result
  } catch (error) {
    broken = await client.query('rollback').then(
      () => false,
      () => true,
    )
    throw error
  } finally {
    client.release(broken)
  }
}

/**
 * True when no connection of the pool became free in time, as too much is asked at once. The server may be well; one that can't be
 * reached gives another error to those who try.
 */
export function isPoolFull(error: unknown): boolean {
  return error instanceof Error && error.message === 'timeout exceeded when trying to connect'
}

/** True when the error means that storage is away or overloaded, so that the same request may succeed later. */
export function isStorageAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const { code } = error as { code?: unknown }
  if (typeof code === 'string') {
    // connection exception, insufficient resources, operator intervention, system error, read-only, lock or serialisation
    if (/^(08|53|57|58)/.test(code) || ['25006', '40001', '40P01', '55P03', '72000'].includes(code)) return true
    if (/^(ECONN|ETIMEDOUT|ENOTFOUND|EPIPE|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ENOENT)/.test(code)) return true
  }
  return /timeout exceeded when trying to connect|Query read timeout|Connection terminated|Client was closed|Client has encountered a connection error/i.test(
    error.message,
  )
}

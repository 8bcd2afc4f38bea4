import pg from 'pg'
import type { Db } from '../db.ts'
import type { Log } from '../log.ts'

/** Counts in memory what the sources answer and which secrets verify, and writes it now and again: no answer waits for it. */
export interface Tallies {
  /** One answer of a source. Outcome and cause are words of ours, never anything that a sender chose. */
  answered(source: string, outcome: string, cause?: string): void
  /** One verified request; the fingerprint is empty where no secret says whom to trust. */
  verified(source: string, fingerprint: string): void
  /** Writes what is left. */
  stop(): Promise<void>
}

interface Answers {
  source: string
  /** Milliseconds at which the minute begins. */
  minute: number
  outcome: string
  cause: string
  count: number
}

interface Verified {
  source: string
  fingerprint: string
  count: number
  first: number
  last: number
}

const MINUTE_MS = 60_000

/** Rows that wait in memory while the database is away; what a further row would count is lost. */
const MOST_ROWS = 10_000

/** Begins counting for one process; any number of processes add to the same rows. */
export function createTallies(pool: pg.Pool, log: Log, everyMs = 5_000, now: () => number = Date.now): Tallies {
  const answers = createSums<Answers>(
    ({ minute, source, outcome, cause }) => `${minute} ${source} ${outcome} ${cause}`,
    (one, other) => ({ ...one, count: one.count + other.count }),
  )
  const secrets = createSums<Verified>(
    ({ source, fingerprint }) => `${source} ${fingerprint}`,
    (one, other) => ({
      ...one,
      count: one.count + other.count,
      first: Math.min(one.first, other.first),
      last: Math.max(one.last, other.last),
    }),
  )
  let isFailing = false

  const flush = async () => {
    if (answers.isEmpty() && secrets.isEmpty()) return
    let client: pg.PoolClient | undefined
    let isDone = false
    try {
      // First of all: without a connection nothing is taken, so nothing is in doubt.
      client = await pool.connect()
      await answers.flush(client, addAnswers)
      await secrets.flush(client, addVerified)
      isDone = true
    } catch (error) {
      // Once for each time that the database is away.
      if (!isFailing) log.warn({ error }, 'tallies not written')
    } finally {
      isFailing = !isDone
      client?.release(!isDone)
    }
  }

  let isStopped = false
  let running = Promise.resolve()
  const next = () =>
    setTimeout(() => {
      running = flush().then(() => {
        if (!isStopped) timer = next()
      })
    }, everyMs).unref()
  let timer = next()

  return {
    answered(source, outcome, cause = '') {
      const at = now()
      answers.add({ source, minute: at - (at % MINUTE_MS), outcome, cause, count: 1 })
    },
    verified(source, fingerprint) {
      const at = now()
      secrets.add({ source, fingerprint, count: 1, first: at, last: at })
    },
    async stop() {
      isStopped = true
      clearTimeout(timer)
      await running
      await flush()
    },
  }
}

/** Rows that add up in memory by their key until they are written. */
function createSums<Row>(keyOf: (row: Row) => string, sum: (one: Row, other: Row) => Row) {
  let rows = new Map<string, Row>()
  const add = (row: Row) => {
    const key = keyOf(row)
    const held = rows.get(key)
    if (held !== undefined) rows.set(key, sum(held, row))
    else if (rows.size < MOST_ROWS) rows.set(key, row)
  }
  return {
    add,
    isEmpty: () => rows.size === 0,
    async flush(db: Db, write: (db: Db, rows: readonly Row[]) => Promise<void>): Promise<void> {
      if (rows.size === 0) return
      const taken = [...rows.values()]
      rows = new Map()
      try {
        await write(db, taken)
      } catch (error) {
        if (isSurelyNotWritten(error)) taken.forEach(add)
        throw error
      }
    },
  }
}

/**
 * Only what the database itself has refused is counted again with the next flush. After a connection that broke the commit is in
 * doubt, and a few seconds are lost rather than counted twice: a number too low hides no event, as those have rows of their own,
 * while one too high would send people after refusals that never were.
 */
function isSurelyNotWritten(error: unknown): boolean {
  return error instanceof pg.DatabaseError && !error.code?.startsWith('57P')
}

// In the order of their keys, so that two processes that write the same rows don't deadlock.

async function addAnswers(db: Db, rows: readonly Answers[]): Promise<void> {
  await db.query({
    name: 'add-answers',
    text: `insert into source_minutes (source, minute, outcome, cause, count)
      select * from unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::int[])
        as given (source, minute, outcome, cause, count)
      order by minute, source, outcome, cause
      on conflict on constraint source_minutes_once do update set count = source_minutes.count + excluded.count`,
    values: [
      rows.map(({ source }) => source),
      rows.map(({ minute }) => new Date(minute)),
      rows.map(({ outcome }) => outcome),
      rows.map(({ cause }) => cause),
      rows.map(({ count }) => count),
    ],
  })
}

async function addVerified(db: Db, rows: readonly Verified[]): Promise<void> {
  await db.query({
    name: 'add-verified',
    text: `insert into source_secrets (source, fingerprint, verified, first_verified_at, last_verified_at)
      select * from unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[], $5::timestamptz[])
        as given (source, fingerprint, verified, first_verified_at, last_verified_at)
      order by source, fingerprint
      on conflict on constraint source_secrets_once do update set
        verified = source_secrets.verified + excluded.verified,
        first_verified_at = least(source_secrets.first_verified_at, excluded.first_verified_at),
        last_verified_at = greatest(source_secrets.last_verified_at, excluded.last_verified_at)`,
    values: [
      rows.map(({ source }) => source),
      rows.map(({ fingerprint }) => fingerprint),
      rows.map(({ count }) => count),
      rows.map(({ first }) => new Date(first)),
      rows.map(({ last }) => new Date(last)),
    ],
  })
}

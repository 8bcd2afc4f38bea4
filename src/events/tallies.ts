import type pg from 'pg'
import type { Db } from '../db.ts'
import type { Log } from '../log.ts'
import { ACK_BUCKETS_MS, bucketOf } from './ack-buckets.ts'
import { createSums } from './sums.ts'

/** Counts in memory what the sources answer and which secrets verify, and writes it now and again: no answer waits for it. */
export interface Tallies {
  /** One answer of a source, and how long it took. Outcome and cause are words of ours, never anything that a sender chose. */
  answered(source: string, outcome: string, cause?: string, seconds?: number): void
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

/** Answers 2xx that took about the same time. */
interface AckTimes {
  source: string
  minute: number
  bucket: number
  count: number
}

const acknowledging: readonly string[] = ['accepted', 'duplicate', 'quarantined']
const MINUTE_MS = 60_000

/** Begins counting for one process; any number of processes add to the same rows. */
export function createTallies(pool: pg.Pool, log: Log, everyMs = 5_000, now: () => number = Date.now): Tallies {
  const answers = createSums<Answers>(
    ({ minute, source, outcome, cause }) => `${minute} ${source} ${outcome} ${cause}`,
    (held, { count }) => {
      held.count += count
    },
  )
  const secrets = createSums<Verified>(
    ({ source, fingerprint }) => `${source} ${fingerprint}`,
    (held, { count, first, last }) => {
      held.count += count
      held.first = Math.min(held.first, first)
      held.last = Math.max(held.last, last)
    },
  )
  const times = createSums<AckTimes>(
    ({ minute, source, bucket }) => `${minute} ${source} ${bucket}`,
    (held, { count }) => {
      held.count += count
    },
  )
  let isFailing = false

  const flush = async () => {
    if (answers.isEmpty() && secrets.isEmpty() && times.isEmpty()) return
    let client: pg.PoolClient | undefined
    let isDone = false
    try {
      // First of all: without a connection nothing is taken, so nothing is in doubt.
      client = await pool.connect()
      await answers.flush(client, addAnswers)
      await secrets.flush(client, addVerified)
      await times.flush(client, addTimes)
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
    answered(source, outcome, cause = '', seconds) {
      const at = now()
      const minute = at - (at % MINUTE_MS)
      answers.add({ source, minute, outcome, cause, count: 1 })
      // A refusal takes no commit: with it the times would look better than they are.
      if (seconds === undefined || !acknowledging.includes(outcome)) return
      times.add({ source, minute, bucket: bucketOf(seconds), count: 1 })
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

async function addTimes(db: Db, times: readonly AckTimes[]): Promise<void> {
  const rows = byMinute(times)
  await db.query({
    name: 'add-ack-times',
    // An array of arrays would be one flat list to unnest.
    text: `insert into ack_minutes (source, minute, counts)
      select source, minute, counts::int[] from unnest($1::text[], $2::timestamptz[], $3::text[]) as given (source, minute, counts)
      order by source, minute
      on conflict on constraint ack_minutes_once do update set counts = (
        select array_agg(held + added order by bucket)
        from unnest(ack_minutes.counts, excluded.counts) with ordinality as sums (held, added, bucket))`,
    values: [
      rows.map(({ source }) => source),
      rows.map(({ minute }) => new Date(minute)),
      rows.map(({ counts }) => `{${counts.join()}}`),
    ],
  })
}

/** The counts of each source and minute by bucket; an empty source stands for all of them together. */
function byMinute(times: readonly AckTimes[]): { source: string; minute: number; counts: number[] }[] {
  const rows = new Map<string, ReturnType<typeof byMinute>[number]>()
  for (const { source: own, minute, bucket, count } of times) {
    for (const source of [own, '']) {
      const name = `${minute} ${source}`
      const row = rows.get(name) ?? { source, minute, counts: Array<number>(ACK_BUCKETS_MS.length + 1).fill(0) }
      row.counts[bucket] = (row.counts[bucket] ?? 0) + count
      rows.set(name, row)
    }
  }
  return [...rows.values()]
}

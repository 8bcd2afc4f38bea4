import type pg from 'pg'
import { type Db, inTransaction } from '../../src/db.ts'
import type { Message } from '../../src/sends/message.ts'
import type { Policy } from '../../src/sends/policies.ts'
import { type Triggered, triggerSend } from '../../src/sends/trigger.ts'
import { type TestDatabase, testDatabase } from './database.ts'
import { insertAttempt, insertSend } from './ops-rows.ts'
import type { TestService } from './service.ts'

export const message = (to: string, subject = 'Your receipt'): Message => ({
  to,
  from_email: 'billing@example.com',
  subject,
  html_body: '<p>Thank you</p>',
})

/** A test database whose connections are waited for: races open many at once, on machines that may be busy. */
export async function patientDatabase(): Promise<TestDatabase> {
  const database = await testDatabase()
  database.pool.options.connectionTimeoutMillis = 20_000
  return database
}

/** Sending runs and matching acts, as in a new database. */
export async function resetControl(db: Db): Promise<void> {
  await db.query(
    `update sending_control set version = 1, held_reason = null, held_by = null, held_at = null, next_probe_at = null, unknown_in_a_row = 0,
       matching = 'auto', matching_reason = null, matching_at = null`,
  )
}

/** Asks for a send as an event or the API would. */
export function queueSend(
  service: Pick<TestService, 'deps'>,
  key: string,
  email: Message = message(`${key}@example.com`),
  policy: Policy = 'claim',
) {
  return inTransaction(
    service.deps.pool,
    (tx): Promise<Triggered> =>
      triggerSend(tx, service.deps.enqueue, {
        key,
        policy,
        message: email,
        sourceEvent: undefined,
        requestedBy: 'token:test',
      }),
  )
}

/** A send whose call is under way, as its worker has left it; answers the claim. */
export async function insertCall(db: Db, key: string, columns: Record<string, unknown> = {}) {
  await insertSend(db, key, { state: 'queued' })
  const attempt = await insertAttempt(db, key, { outcome: 'in_flight', called_at: new Date() })
  await db.query(
    `update email_sends set state = 'claimed', claim_token = $2, claimed_at = now(), sending_at = now() where dedupe_key = $1`,
    [key, attempt],
  )
  await db.query(`update email_sends set state = 'sending' where dedupe_key = $1`, [key])
  for (const [name, value] of Object.entries(columns))
    await db.query(`update email_sends set ${name} = $2 where dedupe_key = $1`, [key, value])
  return { key, attempt, matchKey: 'ada@example.com' }
}

/** The fields of one send that are named. */
export async function sendRow(db: Db, key: string, ...fields: string[]): Promise<Record<string, unknown> | undefined> {
  const { rows } = await db.query(`select ${fields.join(', ')} from email_sends where dedupe_key = $1`, [key])
  return rows[0]
}

export async function attemptsOf(db: Db, key: string): Promise<Record<string, unknown>[]> {
  const { rows } = await db.query(
    'select number, outcome, http_status, error, message_id from send_attempts where dedupe_key = $1 order by number',
    [key],
  )
  return rows
}

/** How many requests for this recipient the email API got. */
export function callsTo(service: Pick<TestService, 'sandbox'>, to: string): number {
  return service.sandbox.ledger.filter((call) => call.to === to).length
}

/** Jobs of a send that are not finished, with the seconds until each may start. */
export async function jobsOf(db: Db, key: string): Promise<number[]> {
  const { rows } = await db.query<{ seconds: number }>(
    `select extract(epoch from start_after - now())::float8 as seconds from pgboss.job
     where name = 'send' and state < 'completed' and data ->> 'key' = $1 order by 1`,
    [key],
  )
  return rows.map((row) => row.seconds)
}

/** Marks the jobs of a send as done, as their worker would. */
export async function finishJobs(db: Db, field: 'key' | 'event', value: string): Promise<void> {
  await db.query(
    `update pgboss.job set state = 'completed', completed_on = now() where state < 'completed' and data ->> $1 = $2`,
    [field, value],
  )
}

/** A pool on which what `intercept` does comes around each statement; transactions go past it. */
export function interceptQueries(
  pool: pg.Pool,
  intercept: (name: string, run: () => Promise<unknown>) => Promise<unknown>,
): pg.Pool {
  const query = (config: pg.QueryConfig, values?: unknown[]) => intercept(config.name ?? '', () => pool.query(config, values))
  return Object.assign(Object.create(pool) as pg.Pool, { query })
}

/** Resolves when as many sessions as said wait for a lock in this database. */
export async function untilWaiting(db: Db, count = 1): Promise<void> {
  for (;;) {
    const { rows } = await db.query<{ waiting: number }>(
      `select count(*)::int as waiting from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    )
    if ((rows[0]?.waiting ?? 0) >= count) return
  }
}

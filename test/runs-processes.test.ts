import { afterAll, expect, test } from 'vitest'
import { checkInvariants, checkLedger } from '../src/ops/invariants.ts'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { testDatabase } from './support/database.ts'
import { apiKey, quick, run, start, until } from './support/processes.ts'

const { url: databaseUrl, pool } = await testDatabase()
const sandbox = await startInboxiliSandbox({ apiKey, sendsPerMinute: 1_000_000 })
afterAll(() => sandbox.close())
const environment = {
  ...quick,
  DATABASE_URL: databaseUrl,
  INBOXILI_BASE_URL: sandbox.url,
  ONCEHOOK_STALE_AFTER_MS: '1000',
}
const oncehook = async (...args: string[]) => {
  const { code, stdout, stderr } = await run([...args, '--json'], environment)
  return { code, stderr, json: stdout === '' ? undefined : JSON.parse(stdout) }
}

test('I2 a replay of many events goes on after the worker that carried it out was killed, and sends each email once', async () => {
  await pool.query(
    `insert into webhook_events (source, event_id, id_basis, id_signed, type, body, body_sha256, headers, status, processed_at)
     select 'shop', 'o' || number, 'provider', true, 'order.paid', body, sha256(body), '{}', 'ignored', now()
     from generate_series(1, 500) as number, lateral (
       select convert_to(format('{"id":"o%1$s","type":"order.paid","order":{"id":"%1$s","email":"o%1$s@example.com"}}', number), 'UTF8') as body) bodies`,
  )
  const sound = await oncehook('verify-invariants', '--ledger', sandbox.url)
  const planned = await oncehook('events', 'replay', '--source', 'shop', '--dry-run', '--by', 'mia')
  const started = await oncehook('events', 'replay', '--plan', planned.json.plan, '--by', 'mia')
  const { id } = started.json
  const progress = async () => (await pool.query('select state, done from runs where id = $1', [id])).rows[0]

  const first = await start('worker', environment)
  await until(async () => (await progress()).done >= 200, 'a batch is done')
  first.kill('SIGKILL')
  await first.exited
  const killedAt = await progress()
  await start('worker', environment)
  await until(async () => (await progress()).state === 'done', 'the run is done')
  await until(
    async () => {
      const { rows } = await pool.query(`select (select count(*) from webhook_events where status = 'pending')
        + (select count(*) from email_sends where state in ('queued', 'claimed', 'sending')) as open`)
      return rows[0].open === '0'
    },
    'everything has come to an end',
    60_000,
  )

  expect(sound).toEqual({ code: 0, stderr: '', json: { violations: [] } })
  expect(planned.json).toMatchObject({ events: 500, forecast: { events: { wants_emails: 500 }, emails: { would_send: 500 } } })
  expect(started.json).toMatchObject({ id: planned.json.plan, state: 'running', done: 0, started_by: 'mia' })
  expect(killedAt.done).toBeLessThan(500)
  expect((await oncehook('runs', 'show', id)).json).toMatchObject({ done: 500, queued: 500, statuses: { processed: 500 } })
  const times = Map.groupBy(
    sandbox.ledger.filter(({ accepted }) => accepted),
    ({ to }) => to,
  )
  expect([...times.values()].filter((calls) => calls.length > 1)).toEqual([])
  const { rows } = await pool.query(`select count(*)::int as count from email_sends where state in ('sent', 'needs_review')`)
  expect(rows).toEqual([{ count: 500 }])
  // Here more calls a minute are allowed.
  const violations = [...(await checkInvariants(pool, 1_000)), ...(await checkLedger(pool, sandbox.ledger))]
  expect(violations.filter(({ invariant }) => invariant !== 'I14')).toEqual([])
}, 120_000)

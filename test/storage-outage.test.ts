import { execFileSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test, vi } from 'vitest'
import { openPool } from '../src/db.ts'
import { installQueues } from '../src/follow-ups/queue.ts'
import { migrate } from '../src/migrate.ts'
import { startDatabase } from '../src/sandbox/database.ts'
import { startInboxiliSandbox } from '../src/sandbox/inboxili.ts'
import { apiKey, postPayment, quick, start, until } from './support/processes.ts'

vi.setConfig({ testTimeout: 60_000 })

// A server of its own, as this one is stopped. It is safe for data, so that the processes run as in production.
const folder = mkdtempSync(join(tmpdir(), 'oncehook-outage-test-'))
chmodSync(folder, 0o755)
let database = await startDatabase({ directory: join(folder, 'postgres') })
const { url: databaseUrl } = database
const restart = async () => {
  database = await startDatabase({ directory: join(folder, 'postgres'), port: Number(new URL(databaseUrl).port) })
}
const sandbox = await startInboxiliSandbox({ apiKey, sendsPerMinute: 1_000_000 })
await migrate(databaseUrl)
await installQueues(databaseUrl)
const pool = openPool({ url: databaseUrl, name: 'test', max: 2 })
afterAll(async () => {
  await pool.end()
  await sandbox.close()
  await database.stop()
  rmSync(folder, { recursive: true })
})

const environment = {
  ...quick,
  NODE_ENV: 'production',
  DATABASE_URL: databaseUrl,
  INBOXILI_BASE_URL: sandbox.url,
  // What the worker had claimed when the database went.
  ONCEHOOK_STALE_AFTER_MS: '1000',
}
const [serve, worker] = await Promise.all([start('serve', environment), start('worker', environment)])

const postAll = (ids: readonly string[]) => Promise.all(ids.map((id) => postPayment(serve.url, id)))
const numbered = (prefix: string, count: number) => Array.from({ length: count }, (_, index) => `${prefix}-${index}`)
const residentKilobytes = () => Number(execFileSync('ps', ['-o', 'rss=', '-p', String(serve.pid)], { encoding: 'utf8' }))
const readiness = async () => (await fetch(`${serve.url}/readyz`)).status

test('C-51 answers 503 at once while the database is down, and takes the same events when it is back', async () => {
  const events = numbered('c51', 50)
  await postPayment(serve.url, 'c51-before')
  await database.stop()

  const down = await postAll(events)
  const before = residentKilobytes()
  for (let repeat = 0; repeat < 5; repeat += 1) await postAll(events)
  const growth = residentKilobytes() - before
  const unsigned = await fetch(`${serve.url}/webhooks/stripe`, { method: 'POST', body: '{}' })
  const [ready, alive] = [await readiness(), (await fetch(`${serve.url}/healthz`)).status]
  await restart()
  const backAt = performance.now()
  await until(async () => (await postPayment(serve.url, 'c51-back')).status === 200, 'an event is taken', 5_000)
  const answeredAfter = performance.now() - backAt
  const again = await postAll(events)

  expect(down.map(({ status }) => status)).toEqual(Array(50).fill(503))
  expect(down.filter(({ ms }) => ms >= 5_000)).toEqual([])
  expect(down.every(({ headers }) => /^[1-9]\d?$/.test(headers.get('retry-after') ?? ''))).toBe(true)
  expect(growth).toBeLessThan(100_000)
  expect([unsigned.status, await unsigned.text(), ready, alive]).toEqual([401, '', 503, 200])
  expect(answeredAfter).toBeLessThan(5_000)
  expect(again.map(({ status }) => status)).toEqual(Array(50).fill(200))
  const { rows } = await pool.query(`select count(*)::int from webhook_events where event_id ~ '^evt_c51-[0-9]'`)
  expect(rows).toEqual([{ count: 50 }])
  expect(await readiness()).toBe(200)
})

test('C-48 a restart of the database under load costs no process and no acknowledged event', async () => {
  const acknowledged: string[] = []
  const statuses = new Set<number>()
  let posted = 0
  let isPosting = true
  const clients = Array.from({ length: 20 }, async () => {
    while (isPosting) {
      posted += 1
      const id = `c48-${posted}`
      // Few of them cause an email, so that the worker isn't what is waited for.
      const type = posted % 20 === 0 ? 'invoice.paid' : 'invoice.created'
      await until(async () => {
        const { status } = await postPayment(serve.url, id, { type })
        statuses.add(status)
        if (status === 200) acknowledged.push(`evt_${id}`)
        return status === 200 || !isPosting
      }, 'the event is taken')
    }
  })
  await until(() => acknowledged.length > 40, 'the load runs')

  await database.stop()
  await until(() => statuses.has(503), 'the outage is felt')
  await restart()
  const backAt = performance.now()
  const before = acknowledged.length
  await until(() => acknowledged.length > before + 40, 'new events are taken')
  const takenAfter = performance.now() - backAt
  isPosting = false
  await Promise.all(clients)
  await until(
    async () => {
      const { rows } = await pool.query(`select (select count(*) from webhook_events where status = 'pending')
        + (select count(*) from email_sends where state in ('queued', 'claimed', 'sending')) as open`)
      return rows[0].open === '0'
    },
    'the worker has come back too and done it all',
    45_000,
  )

  expect([...statuses].sort()).toEqual([200, 503])
  expect(takenAfter).toBeLessThan(5_000)
  const { rows } = await pool.query<{ event_id: string }>(`select event_id from webhook_events`)
  const stored = new Set(rows.map((row) => row.event_id))
  expect(acknowledged.filter((id) => !stored.has(id))).toEqual([])
  const ended = await Promise.race([serve.exited, worker.exited, Promise.resolve('none')])
  expect(ended).toBe('none')
})

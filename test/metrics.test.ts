import { setImmediate as nextTurn } from 'node:timers/promises'
import type pg from 'pg'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { readConfig, type Source } from '../src/config.ts'
import type { Db } from '../src/db.ts'
import { createRecorder } from '../src/events/record.ts'
import type { Delivery, RecordedEvent } from '../src/events/store.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { createLog } from '../src/log.ts'
import { openMetricsPort } from '../src/metrics-port.ts'
import { createMetrics } from '../src/ops/metrics.ts'
import { findProcesses, startHeartbeat } from '../src/ops/processes.ts'
import { createWorkerMetrics } from '../src/ops/worker-metrics.ts'
import { testDatabase } from './support/database.ts'
import { insertAttempt, insertEvent, insertReport, insertSend, insertSettlement } from './support/ops-rows.ts'
import { ingest, signed, sources } from './support/posting.ts'
import { resetControl } from './support/sends.ts'

const database = await testDatabase()
const { pool, url } = database
beforeEach(async () => {
  await pool.query('truncate webhook_events, email_sends, rate_slots, processes cascade')
  await resetControl(pool)
})
afterEach(() => vi.useRealTimers())

/** The values of a text, by name and labels. */
const valuesOf = (text: string) =>
  Object.fromEntries(
    text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  )
const ofName = (values: Record<string, number>, name: string) =>
  Object.fromEntries(Object.entries(values).filter(([key]) => key === name || key.startsWith(`${name}{`)))
const ago = (seconds: number) => new Date(Date.now() - seconds * 1_000)
const hang = () => new Promise<never>(() => undefined)

const units = ['seconds', 'bytes', 'info', 'total']
const counted = ['requests', 'events', 'sends', 'reports', 'connections', 'queries', 'processes', 'day', 'minute', 'up', 'held']

test.each([
  ['serve', () => createMetrics({ pools: { ops: pool }, isWholeProcess: true }).text(pool)],
  ['worker', () => createWorkerMetrics({ pools: { worker: pool }, isWholeProcess: true }).text()],
])('what a %s tells follows the conventions of Prometheus', async (_kind, text) => {
  const lines = (await text()).split('\n')
  const heads = (kind: string) => lines.flatMap((line) => new RegExp(`^# ${kind} (\\S+) (.+)$`).exec(line)?.slice(1, 3) ?? [])
  const pairs = (kind: string) => {
    const flat = heads(kind)
    return flat.flatMap((name, index) => (index % 2 === 0 ? [[name, flat[index + 1] ?? ''] as const] : []))
  }
  const types = new Map(pairs('TYPE'))
  const helps = pairs('HELP')
  const samples = lines.filter((line) => line !== '' && !line.startsWith('#'))

  expect(helps.map(([name]) => name)).toEqual([...types.keys()])
  expect(new Set(helps.map(([name]) => name)).size).toBe(helps.length)
  expect(new Set(samples.map((line) => line.slice(0, line.lastIndexOf(' ')))).size).toBe(samples.length)
  for (const line of samples) {
    const name = /^[a-z_][a-z0-9_]*/.exec(line)?.[0] ?? ''
    expect(types.has(name) || types.has(name.replace(/_(bucket|sum|count)$/, '')), line).toBe(true)
    expect(line).toMatch(/^[a-z0-9_]+(\{([a-z_]+="[^"]*",?)+\})? \S+$/)
  }
  for (const [name, type] of types) {
    if (!name.startsWith('oncehook_')) continue
    expect(name.endsWith('_total'), name).toBe(type === 'counter')
    expect([...units, ...counted], name).toContain(name.split('_').at(-1))
  }
  expect(lines.filter((line) => line.startsWith('oncehook_build_info{'))).toHaveLength(1)
  expect([...types.keys()]).toContain('process_cpu_user_seconds_total')
})

describe('what stands in the tables', () => {
  test('is counted by its status, with the age of the oldest that is due', async () => {
    await insertEvent(pool, 'evt_1', { status: 'pending', processed_at: null, received_at: ago(90) })
    await insertEvent(pool, 'evt_2', { status: 'pending', processed_at: null })
    await insertEvent(pool, 'evt_3', { status: 'failed', processed_at: null })
    await insertEvent(pool, 'evt_4')
    await insertSend(pool, 'due', { queued_at: ago(1_000), send_after: ago(60) })
    await insertSend(pool, 'later', { queued_at: ago(5_000), send_after: ago(-600) })
    await insertSend(pool, 'unknown', { state: 'needs_review', queued_at: ago(7_200) })
    await insertSend(pool, 'old', { state: 'sent', queued_at: ago(100_000) })
    await insertSend(pool, 'sent', { state: 'sent' })
    const attempt = await insertAttempt(pool, 'sent')
    await insertSettlement(pool, 'sent', attempt, { grade: 'B' })
    await insertSettlement(pool, 'sent', attempt, { grade: 'B', at: ago(90_000) })
    await insertReport(pool, await insertEvent(pool, 'evt_5'), { parked: 'foreign' })
    await pool.query(`insert into rate_slots values ('a', now() - interval '1 s'), ('b', now() + interval '30 s')`)

    const values = valuesOf(await createMetrics().text(pool))

    expect(ofName(values, 'oncehook_database_up')).toEqual({ oncehook_database_up: 1 })
    expect(ofName(values, 'oncehook_open_sends')).toEqual({
      'oncehook_open_sends{status="queued"}': 2,
      'oncehook_open_sends{status="claimed"}': 0,
      'oncehook_open_sends{status="sending"}': 0,
      'oncehook_open_sends{status="needs_review"}': 1,
      'oncehook_open_sends{status="rejected"}': 0,
    })
    expect(ofName(values, 'oncehook_open_events')).toEqual({
      'oncehook_open_events{status="pending"}': 2,
      'oncehook_open_events{status="failed"}': 1,
      'oncehook_open_events{status="quarantined"}': 0,
    })
    expect(ofName(values, 'oncehook_sends_last_day')).toMatchObject({
      'oncehook_sends_last_day{status="queued"}': 2,
      'oncehook_sends_last_day{status="needs_review"}': 1,
      'oncehook_sends_last_day{status="sent"}': 1,
      'oncehook_sends_last_day{status="bounced"}': 0,
    })
    expect(ofName(values, 'oncehook_settlements_last_day')).toEqual({
      'oncehook_settlements_last_day{grade="A"}': 0,
      'oncehook_settlements_last_day{grade="B"}': 1,
      'oncehook_settlements_last_day{grade="C"}': 0,
      'oncehook_settlements_last_day{grade="P"}': 0,
    })
    expect(values.oncehook_parked_reports).toBe(1)
    const ages = ['oldest_event', 'oldest_send', 'oldest_review', 'next_call'].map((name) => values[`oncehook_${name}_seconds`])
    for (const [index, seconds] of [90, 60, 7_200, 30].entries()) expect(Math.abs((ages[index] ?? 0) - seconds)).toBeLessThan(10)
  })

  test('is 0 where nothing is open, and nothing is said of a sweep that never was', async () => {
    const values = valuesOf(await createMetrics().text(pool))

    for (const name of [
      'oldest_event_seconds',
      'oldest_send_seconds',
      'oldest_review_seconds',
      'parked_reports',
      'next_call_seconds',
    ])
      expect(values[`oncehook_${name}`], name).toBe(0)
    expect(ofName(values, 'oncehook_last_sweep_seconds')).toEqual({})
    expect(ofName(values, 'oncehook_processes')).toEqual({
      'oncehook_processes{kind="serve"}': 0,
      'oncehook_processes{kind="worker"}': 0,
    })
  })

  test('has no values while the database is away, the rest has', async () => {
    const metrics = createMetrics()
    metrics.acknowledged('stripe', 'accepted', 0.004)
    await metrics.text(pool)
    const away = { query: () => Promise.reject(Object.assign(new Error('no route'), { code: 'ECONNREFUSED' })) } as Db

    const values = valuesOf(await metrics.text(away))

    expect(values.oncehook_database_up).toBe(0)
    for (const name of ['open_sends', 'oldest_review_seconds', 'parked_reports', 'held', 'sends_last_day'])
      expect(ofName(values, `oncehook_${name}`), name).toEqual({})
    expect(values['oncehook_webhook_answers_total{source="stripe",result="accepted"}']).toBe(1)
    expect(valuesOf(await metrics.text(pool)).oncehook_database_up).toBe(1)
  })

  test('is not waited for beyond two seconds', async () => {
    const values = valuesOf(await createMetrics().text({ query: hang }))

    expect(values.oncehook_database_up).toBe(0)
  })

  test('is asked for once, however many ask at once, and a day is counted once a minute', async () => {
    const asked: string[] = []
    const listening: Db = {
      query: (config, values) => {
        asked.push(typeof config === 'string' ? config : (config.name ?? ''))
        return pool.query(config as string, values as unknown[])
      },
    }
    const metrics = createMetrics()

    await Promise.all(Array.from({ length: 20 }, () => metrics.text(listening)))
    await metrics.text(listening)

    expect(asked).toEqual(['find-levels', 'find-last-day', 'find-levels'])
  })

  test('is found by indexes, whatever the size of the tables', async () => {
    await pool.query(
      `insert into email_sends (dedupe_key, state, policy, recipient, match_key, message, message_sha256, requested_by, completed_at, queued_at)
       select 'k' || n, 'sent', 'claim', 'a@example.com', 'a@example.com', '{}', '\\x00', 'token:test', now(), now() - n * interval '1 min'
       from generate_series(1, 20000) n;
       insert into webhook_events (source, event_id, id_basis, id_signed, body, body_sha256, headers, status, processed_at)
       select 'stripe', 'e' || n, 'provider', true, '\\x00', '\\x00', '{}', 'processed', now() from generate_series(1, 20000) n;
       analyze email_sends; analyze webhook_events`,
    )
    const plans: string[] = []
    const explaining: Db = {
      query: async (config, values) => {
        const { text, values: given } = typeof config === 'string' ? { text: config, values } : config
        const { rows } = await pool.query<{ 'QUERY PLAN': string }>(`explain ${text}`, given as unknown[])
        plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'))
        return pool.query(config as string, values as unknown[])
      },
    }

    await createMetrics().text(explaining)

    expect(plans).toHaveLength(2)
    for (const plan of plans) expect(plan).not.toMatch(/Seq Scan on (email_sends|webhook_events)/)
    expect(plans[0]).toMatch(/Index (Only )?Scan using email_sends_open/)
    expect(plans[0]).toMatch(/Index (Only )?Scan using webhook_events_open/)
    expect(plans[1]).toMatch(/email_sends_by_status/)
  })
})

describe('a source', () => {
  const results = ['accepted', 'duplicate', 'quarantined', 'refused', 'not_recorded', 'overloaded', 'key_unavailable']
  const ofSource = (values: Record<string, number>, source: string) =>
    results.map((result) => values[`oncehook_webhook_answers_total{source="${source}",result="${result}"}`])

  test('has its counters from the first reading on, so that its first burst is a rise', async () => {
    const metrics = createMetrics({ sources: () => ['stripe', 'shop'] })

    const fresh = valuesOf(await metrics.text(pool))
    for (let time = 0; time < 20; time += 1) metrics.acknowledged('stripe', 'refused', 0.001)
    metrics.refused('stripe', 'signature_mismatch')
    const after = valuesOf(await metrics.text(pool))

    expect([ofSource(fresh, 'stripe'), ofSource(fresh, 'shop')]).toEqual([results.map(() => 0), results.map(() => 0)])
    expect(fresh['oncehook_webhook_answers_total{source="shop",result="body_too_large"}']).toBe(0)
    expect(fresh['oncehook_webhook_refusals_total{source="shop",cause="missing_signature"}']).toBe(0)
    expect(ofSource(after, 'stripe')).toEqual([0, 0, 0, 20, 0, 0, 0])
    expect(after['oncehook_webhook_refusals_total{source="stripe",cause="signature_mismatch"}']).toBe(1)
  })

  test('that joins the configuration has them from then on', async () => {
    const names = ['stripe']
    const metrics = createMetrics({ sources: () => names })
    await metrics.text(pool)

    names.push('shop')

    expect(ofSource(valuesOf(await metrics.text(pool)), 'shop')).toEqual(results.map(() => 0))
  })
})

describe('the way of a webhook', () => {
  test('is told by requests under way, those that wait and batches', async () => {
    const metrics = createMetrics({ waiting: () => ({ requests: 7, bytes: 0 }), sendsPerMinute: 110 })

    metrics.underWay(1, 500)
    metrics.underWay(1, 20)
    metrics.underWay(-1, -500)
    metrics.batched(1)
    metrics.batched(100)

    expect(valuesOf(await metrics.text(pool))).toMatchObject({
      oncehook_webhook_requests: 1,
      oncehook_webhook_bytes: 20,
      oncehook_waiting_requests: 7,
      oncehook_call_limit_per_minute: 110,
      'oncehook_batch_events_bucket{le="1"}': 1,
      'oncehook_batch_events_bucket{le="64"}': 1,
      'oncehook_batch_events_bucket{le="128"}': 2,
      oncehook_batch_events_sum: 101,
      oncehook_batch_events_count: 2,
    })
  })

  test('has its recorder tell of each transaction and of those that wait for the next one', async () => {
    const { promise: committed, resolve: commit } = Promise.withResolvers<void>()
    const slow = { query: () => committed.then(() => ({ rows: [] })) } as unknown as pg.Pool // it only queries
    const batches: number[] = []
    const recorder = createRecorder(slow, await openJobs(url), (events) => batches.push(events))
    const { provider } = readConfig({ sources }).sources.get('stripe') as Source

    const record = (body: string) => recorder.record(delivery(body), provider).catch(() => undefined)
    const first = ['a', 'bb'].map(record)
    await nextTurn()
    const rest = ['ccc', 'dddd', 'eeeee'].map(record)

    expect([batches, recorder.waiting()]).toEqual([[2], { requests: 3, bytes: 12 }])
    commit()
    await Promise.all([...first, ...rest])
    expect([batches.slice(0, 2), recorder.waiting()]).toEqual([[2, 3], { requests: 0, bytes: 0 }])
  })

  test('has its route tell of each request, and of its end, however it ends', async () => {
    const { promise: committed, resolve: commit } = Promise.withResolvers<RecordedEvent[]>()
    let requests = 0
    let bytes = 0
    const { post } = await ingest(database, undefined, {
      recorder: { record: () => committed, delayMs: () => 0 },
      underWay(more, moreBytes) {
        requests += more
        bytes += moreBytes
      },
    })
    const body = '{"id":"evt_1","type":"invoice.paid"}'
    const answers = [post('/webhooks/generic', body, signed.generic(body)), post('/webhooks/generic', body, signed.generic(body))]

    await expect.poll(() => [requests, bytes]).toEqual([2, 72])
    expect((await post('/webhooks/generic', body)).status).toBe(401)
    commit([{ id: 'evt_1', type: 'invoice.paid', status: 'accepted' }])
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200])
    await expect.poll(() => [requests, bytes]).toEqual([0, 0])
  })
})

const delivery = (body: string): Delivery => ({
  source: 'stripe',
  body: Buffer.from(body),
  sha256: Buffer.alloc(32),
  headers: {},
  secretIndex: 0,
  secretFingerprint: null,
  events: [
    {
      id: body,
      idBasis: 'provider',
      idIsSigned: true,
      type: 'invoice.paid',
      livemode: true,
      occurredAt: null,
      objectRef: null,
      replayKey: null,
      needsPerson: undefined,
      status: 'ignored',
      error: null,
    },
  ],
})

test('a worker counts its calls by outcome, those of dead workers too', async () => {
  const metrics = createWorkerMetrics()
  metrics.called('accepted', 0.2)
  metrics.called('unknown', 15)
  metrics.left({ staleClaims: 2, staleCalls: 1 })

  const values = valuesOf(await metrics.text())

  expect(ofName(values, 'oncehook_email_calls_total')).toEqual({
    'oncehook_email_calls_total{outcome="accepted"}': 1,
    'oncehook_email_calls_total{outcome="refused"}': 0,
    'oncehook_email_calls_total{outcome="rate_limited"}': 0,
    'oncehook_email_calls_total{outcome="not_sent"}': 0,
    'oncehook_email_calls_total{outcome="unknown"}': 2,
    'oncehook_email_calls_total{outcome="never_called"}': 2,
  })
  expect(values).toMatchObject({
    'oncehook_email_call_seconds_bucket{le="0.25"}': 1,
    'oncehook_email_call_seconds_bucket{le="15"}': 2,
    oncehook_email_call_seconds_count: 2,
  })
})

test('the connections of each pool are told', async () => {
  const client = await pool.connect()
  const values = valuesOf(await createWorkerMetrics({ pools: { worker: pool } }).text())
  client.release()

  expect(values['oncehook_pool_max_connections{pool="worker"}']).toBe(20)
  expect(values['oncehook_pool_waiting_queries{pool="worker"}']).toBe(0)
  const open = values['oncehook_pool_connections{pool="worker"}'] ?? 0
  expect(open - (values['oncehook_pool_idle_connections{pool="worker"}'] ?? 0)).toBe(1)
})

test('the port of a worker answers its metrics and that it lives, and nothing else', async () => {
  const port = await openMetricsPort({ port: 0, host: '127.0.0.1' }, createWorkerMetrics())
  const get = async (path: string, method = 'GET') => {
    const answer = await fetch(`http://127.0.0.1:${port.port}${path}`, { method })
    return [answer.status, await answer.text()] as const
  }

  const [metrics, health, other, posted] = [
    await get('/metrics?x=1'),
    await get('/healthz'),
    await get('/v1/sends'),
    await get('/metrics', 'POST'),
  ]
  const second = openMetricsPort({ port: port.port, host: '127.0.0.1' }, createWorkerMetrics())
  const message = `ONCEHOOK_WORKER_METRICS_PORT: port ${port.port} on 127.0.0.1 is in use; each worker of a machine needs one of its own`

  expect(metrics[0]).toBe(200)
  expect(metrics[1]).toContain('oncehook_email_calls_total{outcome="accepted"} 0')
  expect(health).toEqual([200, '{"status":"ok"}'])
  expect([other, posted]).toEqual([
    [404, ''],
    [404, ''],
  ])
  await expect(second).rejects.toMatchObject({ code: 'EADDRINUSE', message })
  port.close()
  await expect(get('/healthz')).rejects.toThrow()
})

describe('the processes', () => {
  const quiet = createLog('silent', 'test')
  const begin = (kind: 'serve' | 'worker', everyMs = 5) => startHeartbeat(pool, { kind, version: '1.2.3' }, quiet, everyMs)
  const seen = async () => (await findProcesses(pool)).map(({ kind, is_alive }) => [kind, is_alive])

  test('are seen while they run, with their sweeps, and gone when they end', async () => {
    const [serve, worker] = [begin('serve'), begin('worker')]
    worker.swept()

    await expect
      .poll(async () => (await findProcesses(pool)).map((row) => row.seconds_since_sweep !== null))
      .toEqual([false, true])
    const [first] = await findProcesses(pool)
    expect(first).toMatchObject({ kind: 'serve', version: '1.2.3', pid: process.pid, is_alive: true })
    expect(Math.abs(first?.clock_ahead_ms ?? 1e9)).toBeLessThan(60_000)
    const values = valuesOf(await createMetrics().text(pool))
    expect(values['oncehook_processes{kind="worker"}']).toBe(1)
    expect(values.oncehook_last_sweep_seconds).toBeLessThan(60)

    await Promise.all([serve.stop(), worker.stop()])
    expect(await seen()).toEqual([])
    expect(valuesOf(await createMetrics().text(pool))['oncehook_processes{kind="worker"}']).toBe(0)
    const { rows } = await pool.query('select kind, ended_at = seen_at as has_ended from processes order by kind')
    expect(rows).toEqual([
      { kind: 'serve', has_ended: true },
      { kind: 'worker', has_ended: true },
    ])
  })

  test('tell their first sweep at once, whenever it ends', async () => {
    const sweeps = async () => (await findProcesses(pool)).map((row) => row.seconds_since_sweep !== null)
    const [early, late] = [begin('worker', 3_600_000), begin('worker', 3_600_000)]
    early.swept()
    await expect.poll(async () => (await sweeps()).filter(Boolean).length).toBe(1)
    late.swept()

    await expect.poll(sweeps).toEqual([true, true])
    await Promise.all([early.stop(), late.stop()])
    expect(await sweeps()).toEqual([])
  })

  test('that were killed are taken for dead after half a minute, and listed for a day', async () => {
    const worker = begin('worker', 3_600_000)
    await expect.poll(seen).toEqual([['worker', true]])
    await pool.query(`update processes set seen_at = now() - interval '31 s'`)
    expect(await seen()).toEqual([['worker', false]])
    expect(valuesOf(await createMetrics().text(pool))['oncehook_processes{kind="worker"}']).toBe(0)

    await pool.query(`update processes set seen_at = now() - interval '25 h'`)
    expect(await seen()).toEqual([])
    await worker.stop()
  })

  test('keep the rows of those that lived for a while for eight days, of those that could not stay up for an hour', async () => {
    const row = (host: string, started: string, last: string) =>
      pool.query(
        `insert into processes (id, kind, host, pid, version, clock_ahead_ms, started_at, seen_at)
         values (gen_random_uuid(), 'serve', $1, 1, '1', 0, now() - $2::interval, now() - $3::interval)`,
        [host, started, last],
      )
    await row('kept', '9 days', '7 days 23 h')
    await row('old', '9 days', '8 days 1 h')
    await row('kept too', '50 min 30 s', '50 min')
    await row('short', '2 h 30 s', '2 h')

    const other = begin('worker', 3_600_000)

    await expect.poll(seen).toContainEqual(['worker', true])
    await other.stop()
    const { rows } = await pool.query<{ host: string }>(`select host from processes where kind = 'serve' order by seen_at`)
    expect(rows.map(({ host }) => host)).toEqual(['kept', 'kept too'])
  })

  test('go on when the database comes back, and keep the sweep that they could not tell', async () => {
    let isAway = true
    let refused = 0
    const unsure: Db = {
      query: (config, values) => {
        if (!isAway) return pool.query(config as string, values as unknown[])
        refused += 1
        return Promise.reject(Object.assign(new Error('away'), { code: 'ECONNREFUSED' }))
      },
    }
    const worker = startHeartbeat(unsure, { kind: 'worker', version: '1.2.3' }, quiet, 5)
    worker.swept()
    await expect.poll(() => refused).toBeGreaterThan(2)

    isAway = false

    await expect.poll(async () => (await findProcesses(pool)).map((row) => row.seconds_since_sweep !== null)).toEqual([true])
    await worker.stop()
  })

  test('with a clock that is years off are seen all the same', async () => {
    vi.useFakeTimers({ now: 0, toFake: ['Date'] })
    const worker = begin('worker', 3_600_000)

    await expect.poll(async () => (await findProcesses(pool)).map((row) => row.clock_ahead_ms)).toEqual([-2_000_000_000])
    vi.useRealTimers()
    await worker.stop()
  })
})

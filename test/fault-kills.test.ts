import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { FaultPoint } from '../src/fault-points.ts'
import { createToken } from '../src/ops/tokens.ts'
import { type CrashPointName, crashPoints, findEnd, keyOf, post, recover, report, survivor } from './support/crashes.ts'
import { halfLineTo, lineTo } from './support/line.ts'
import { onInsert } from './support/posting.ts'
import { postPayment, quick, spawnEntry, start, until } from './support/processes.ts'
import { callsTo, patientDatabase, resetControl, sendRow } from './support/sends.ts'
import { API_KEY, connect } from './support/service.ts'

// Each place at which a process may end, in a process that is killed there; what others then do is done in this one.

const database = await patientDatabase()
const { pool, url } = database
const service = await survivor(database)
const { sandbox } = service
const line = await lineTo(url)
const half = await halfLineTo(sandbox.url)
const operator = await createToken(pool, { name: 'tester', role: 'operator' })

let number = 0
let id = ''
// A process must find no other test's jobs.
beforeEach(async () => {
  await pool.query('truncate pgboss.job')
  number += 1
  id = `k${number}`
})
afterEach(async () => {
  await resetControl(pool)
  sandbox.disarm()
})

const environment = {
  ...quick,
  DATABASE_URL: url,
  INBOXILI_API_KEY: API_KEY,
  INBOXILI_BASE_URL: sandbox.url,
  ONCEHOOK_STALE_AFTER_MS: '300000',
}
const armed = (point: FaultPoint, what = 'kill') => ({ ...environment, ONCEHOOK_FAULTS: `${point}=${what}` })
const unsure = { ...environment, DATABASE_URL: line.url }
const commitOf = (name: CrashPointName, meanwhile: () => unknown) => {
  const { at } = crashPoints[name]
  if (typeof at === 'string') throw new Error(`${name} is no commit`)
  return line.loseCommitOf(at.commitOf, meanwhile)
}
const worker = (variables: Record<string, string>) => {
  const { child, exited, output } = spawnEntry(['worker'], variables, ['ignore', 'pipe', 'pipe'])
  return { kill: (signal: NodeJS.Signals) => void child.kill(signal), exited, output }
}
const killed = { code: null, signal: 'SIGKILL' }

const sentOnce = { events: [{ status: 'processed' }], status: 'sent', calls: 1, accepted: 1, audited: 0 }
const unknown = { ...sentOnce, status: 'needs_review' }
const theEnd = () => findEnd(database, service, id)
const recovered = async () => {
  await recover(database, service)
  return theEnd()
}
/** The acknowledged event, its jobs and what follows left to whoever comes. */
const deliver = async () => expect(await post(service, id)).toBe(200)

describe('I2 I4 an acknowledging process that is killed', () => {
  /** What the provider was told, and is told when it posts again. */
  const again = async (first: number) => [first, await post(service, id)]

  test.each([
    ['ingest.read', 0],
    ['ingest.verified', 0],
    ['ingest.committed', 1],
  ] as const)('at %s has acknowledged nothing; its event is sent once', async (point, stored) => {
    const serve = await start('serve', armed(point))

    const { status } = await postPayment(serve.url, id)

    expect(await serve.exited).toEqual(killed)
    expect((await theEnd()).events).toHaveLength(stored)
    expect(await again(status)).toEqual([0, 200])
    expect(await recovered()).toEqual(sentOnce)
  })

  test('at ingest.acked has lost nothing, whether its answer came or not', async () => {
    const serve = await start('serve', armed('ingest.acked'))

    await postPayment(serve.url, id)

    expect(await serve.exited).toEqual(killed)
    expect(await recovered()).toEqual(sentOnce)
  })

  test('at ingest.inserted has acknowledged nothing; its event is sent once', async () => {
    const gate = await connect(url)
    await gate.query('select pg_advisory_lock(1)')
    const waiting = await onInsert(database, 'perform pg_advisory_xact_lock(1);', 'at commit')
    const serve = await start('serve', environment)
    const posting = postPayment(serve.url, id)
    await until(
      async () => (await pool.query(`select from pg_locks where locktype = 'advisory' and not granted`)).rows.length > 0,
      'it has inserted',
    )

    serve.kill('SIGKILL')
    await serve.exited
    // Nobody is left to be told: the database commits all the same.
    await gate.end()
    const { status } = await posting
    const statuses = await again(status)
    await waiting.remove()

    expect(statuses).toEqual([0, 200])
    expect(await recovered()).toEqual(sentOnce)
  })

  test('at ingest.commit_sent has acknowledged nothing; its event is sent once', async () => {
    const serve = await start('serve', unsure)
    const lost = commitOf('ingest.commit_sent', () => serve.kill('SIGKILL'))

    const { status } = await postPayment(serve.url, id)
    await lost

    expect(await serve.exited).toEqual(killed)
    expect((await theEnd()).events).toHaveLength(1)
    expect(await again(status)).toEqual([0, 200])
    expect(await recovered()).toEqual(sentOnce)
  })

  test('I16 at ops.commit_sent has decided once', async () => {
    await deliver()
    sandbox.arm({ kind: 'cut_before_accept' })
    await service.drain()
    const serve = await start('serve', unsure)
    const lost = commitOf('ops.commit_sent', () => serve.kill('SIGKILL'))
    const decision = { decision: 'abandoned', version: 4, reason: 'paid twice' }

    const answer = await fetch(`${serve.url}/v1/sends/${encodeURIComponent(keyOf(id))}/resolve`, {
      method: 'POST',
      headers: { authorization: `Bearer ${operator}`, 'content-type': 'application/json' },
      body: JSON.stringify(decision),
    }).catch(() => undefined)
    await lost

    expect([answer, await serve.exited]).toEqual([undefined, killed])
    expect(await recovered()).toEqual({ ...sentOnce, status: 'abandoned', accepted: 0, audited: 1 })
  })
})

describe('a worker that is killed', () => {
  test.each([
    ['job.fetched', undefined, sentOnce],
    ['job.before_complete', 'queued', sentOnce],
    ['send.before_claim', 'queued', sentOnce],
    ['send.claimed', 'claimed', sentOnce],
    ['send.response_received', 'sending', unknown],
    ['send.recorded', 'sent', sentOnce],
    ['parked.rescan', 'sent', sentOnce],
  ] as const)('I1 I6 at %s leaves what others end as they must', async (point, state, end) => {
    await deliver()

    expect(await worker(armed(point)).exited).toEqual(killed)
    expect((await theEnd()).status).toBe(state)
    expect(await recovered()).toEqual(end)
  })

  test.each([
    ['send.claim_commit_sent', 'claimed'],
    ['send.record_commit_sent', 'sent'],
  ] as const)('I1 at %s leaves a send that is %s, and sent once in the end', async (name, state) => {
    await deliver()
    const lost = commitOf(name, () => it.kill('SIGKILL'))
    const it = worker(unsure)
    await lost

    expect(await it.exited).toEqual(killed)
    expect((await theEnd()).status).toBe(state)
    expect(await recovered()).toEqual(sentOnce)
  })

  test('I8 at send.release_commit_sent has freed the key', async () => {
    await deliver()
    sandbox.arm({ kind: 'status', status: 422, code: 'sender_not_verified' })
    const lost = commitOf('send.release_commit_sent', () => it.kill('SIGKILL'))
    const it = worker(unsure)
    await lost
    await it.exited
    const released = (await recovered()).status
    const { rows } = await pool.query<{ id: string }>('select id from webhook_events where event_id = $1', [`evt_${id}`])
    await service.replay(rows[0]?.id ?? '')

    expect(released).toBe('rejected')
    expect(await recovered()).toEqual({ ...sentOnce, calls: 2 })
  })

  test('I7 at send.request_partial leaves an unknown send, which nobody calls again', async () => {
    await deliver()
    const lost = half.loseHalf(() => it.kill('SIGKILL'))
    const it = worker({ ...environment, INBOXILI_BASE_URL: half.url })
    await lost

    expect(await it.exited).toEqual(killed)
    expect((await theEnd()).status).toBe('sending')
    expect(await recovered()).toEqual({ ...unknown, accepted: 0 })
  })

  test('I7 at send.request_sent leaves an unknown send, which nobody calls again', async () => {
    await deliver()
    sandbox.arm({ kind: 'hold' })
    sandbox.armReports({ kind: 'never' })
    const it = worker(environment)
    await until(() => callsTo(service, `${id}@example.com`) === 1, 'the call is under way')

    it.kill('SIGKILL')

    expect(await it.exited).toEqual(killed)
    expect((await theEnd()).status).toBe('sending')
    expect(await recovered()).toEqual(unknown)
  })

  test('at settle.locked has settled nothing, and others do', async () => {
    await deliver()
    await service.drain()
    await report(service, id)

    expect(await worker(armed('settle.locked')).exited).toEqual(killed)
    expect((await theEnd()).status).toBe('sent')
    expect(await recovered()).toEqual({ ...sentOnce, status: 'delivered' })
  })

  test('at settle.commit_sent has settled once', async () => {
    await deliver()
    await service.drain()
    await report(service, id)
    const lost = commitOf('settle.commit_sent', () => it.kill('SIGKILL'))
    const it = worker(unsure)
    await lost
    await it.exited
    const { version } = (await sendRow(pool, keyOf(id), 'version')) ?? {}

    expect(await recovered()).toEqual({ ...sentOnce, status: 'delivered' })
    expect(await sendRow(pool, keyOf(id), 'version')).toEqual({ version })
  })

  test('I13 at sweep.commit_sent has swept once', async () => {
    await deliver()
    await worker(armed('send.claimed')).exited
    await pool.query(`update email_sends set claimed_at = now() - interval '301 s' where dedupe_key = $1`, [keyOf(id)])
    const lost = commitOf('sweep.commit_sent', () => it.kill('SIGKILL'))
    const it = worker(unsure)
    await lost
    await it.exited

    expect(await sendRow(pool, keyOf(id), 'state', 'version')).toEqual({ state: 'queued', version: 3 })
    expect(await recovered()).toEqual(sentOnce)
  })
})

test('I1 zombie: a worker that is stopped at send.claimed and goes on after its send went out calls nothing', async () => {
  await deliver()
  const zombie = worker(armed('send.claimed', 'stop'))
  await until(async () => (await theEnd()).status === 'claimed', 'it has claimed')
  const meanwhile = await recovered()

  zombie.kill('SIGCONT')
  // Its job is completed once it has found that its claim is gone.
  await until(async () => {
    const { rows } = await pool.query(
      `select from pgboss.job where name = 'send' and state = 'completed' and data ->> 'key' = $1`,
      [keyOf(id)],
    )
    return rows.length > 0
  }, 'it has gone on')
  zombie.kill('SIGTERM')
  await zombie.exited

  expect([meanwhile, await theEnd()]).toEqual([sentOnce, sentOnce])
})

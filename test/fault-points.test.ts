import { afterAll, afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { productionProblems } from '../src/config.ts'
import { openPool } from '../src/db.ts'
import { armFault, armFaults, type FaultPoint, faultPoints, reached, readFaults } from '../src/fault-points.ts'
import { startWorkers } from '../src/follow-ups/queue.ts'
import { createLog } from '../src/log.ts'
import { decide } from '../src/sends/decide.ts'
import { sendOnce } from '../src/sends/send-once.ts'
import { readSettings } from '../src/settings.ts'
import { type CrashPointName, crashPoints, findEnd, keyOf, post, recover, report, survivor, unlisted } from './support/crashes.ts'
import { halfLineTo, lineTo } from './support/line.ts'
import { onInsert, refuse } from './support/posting.ts'
import { until } from './support/processes.ts'
import { callsTo, patientDatabase, resetControl, sendRow } from './support/sends.ts'

// Each place at which a process may end, in this process: what it runs into there is an error. The same with kill is in
// fault-kills.test.ts.

const database = await patientDatabase()
const { pool, url } = database
const service = await survivor(database)
const { deps, sandbox } = service
const half = await halfLineTo(sandbox.url)
// Another one, whose way to the database loses answers.
const line = await lineTo(url)
const unsurePool = openPool({ url: line.url, name: 'unsure', max: 5, connectionTimeout: 10_000 })
afterAll(() => unsurePool.end())
const unsure = await survivor({ ...database, pool: unsurePool })

let number = 0
let id = ''
beforeEach(() => {
  number += 1
  id = `p${number}`
})
afterEach(async () => {
  await resetControl(pool)
  sandbox.disarm()
})

/** Has the code fail at a place, once or as often as said; counts. */
function failAt(point: FaultPoint, times = 1) {
  const fault = vi.fn((at: FaultPoint) => {
    if (fault.mock.calls.length === times) armed.disarm()
    throw new Error(`fault at ${at}`)
  })
  const armed = armFault(point, fault)
  onTestFinished(armed.disarm)
  return fault
}

/** Has the code stand still at a place, once, until it is let go. */
function stopAt(point: FaultPoint) {
  const { promise: reached, resolve: arrive } = Promise.withResolvers<void>()
  const { promise: gate, resolve: letGo } = Promise.withResolvers<void>()
  const armed = armFault(point, () => {
    armed.disarm()
    arrive()
    return gate
  })
  onTestFinished(() => {
    armed.disarm()
    letGo()
  })
  return { reached, letGo }
}

const fail = () => undefined
/** The worker's part, whatever it runs into. */
const send = (changes = {}) => sendOnce({ ...deps, ...changes }, keyOf(id)).catch(fail)
const commitOf = (name: CrashPointName) => {
  const { at } = crashPoints[name]
  if (typeof at === 'string') throw new Error(`${name} is no commit`)
  return line.loseCommitOf(at.commitOf)
}
/** Posts until it is acknowledged, as a provider does; answers each status. */
async function deliver(): Promise<number[]> {
  const statuses: number[] = []
  do statuses.push(await post(service, id))
  while (statuses.at(-1) !== 200 && statuses.length < 5)
  return statuses
}

const sentOnce = { events: [{ status: 'processed' }], status: 'sent', calls: 1, accepted: 1, audited: 0 }
const unknown = { ...sentOnce, status: 'needs_review' }
const theEnd = () => findEnd(database, service, id)
const recovered = async () => {
  await recover(database, service)
  return theEnd()
}

test('every place in the code is one of the crash points, and the variable takes no other', () => {
  expect(unlisted).toEqual([])
  expect(Object.keys(crashPoints).sort()).toEqual([
    'ingest.acked',
    'ingest.commit_sent',
    'ingest.committed',
    'ingest.inserted',
    'ingest.read',
    'ingest.verified',
    'job.before_complete',
    'job.fetched',
    'ops.commit_sent',
    'parked.rescan',
    'send.before_claim',
    'send.claim_commit_sent',
    'send.claimed',
    'send.record_commit_sent',
    'send.recorded',
    'send.release_commit_sent',
    'send.request_partial',
    'send.request_sent',
    'send.response_received',
    'settle.commit_sent',
    'settle.locked',
    'sweep.commit_sent',
  ])
  expect(faultPoints.map((point) => readFaults(`${point}=kill`)?.get(point))).toEqual(faultPoints.map(() => 'kill'))
  expect(readFaults('send.claimed=kill, ingest.read=stop')).toEqual(
    new Map([
      ['send.claimed', 'kill'],
      ['ingest.read', 'stop'],
    ]),
  )
  for (const text of ['send.nowhere=kill', 'send.claimed=run', 'send.claimed', 'send.claimed=kill=kill', 'send.claimed=toString'])
    expect(readFaults(text)).toBeUndefined()
})

test('a place that the variable arms fails, and no other; production refuses it', async () => {
  const faults = readFaults('send.claimed=throw') ?? new Map()
  armFaults(faults)
  onTestFinished(() => armFault('send.claimed', fail).disarm())

  expect(() => reached('send.claimed')).toThrow('fault at send.claimed')
  expect(await reached('send.recorded')).toBeUndefined()
  expect(() => readSettings({ ONCEHOOK_FAULTS: 'send.claimed=explode' })).toThrow('ONCEHOOK_FAULTS')
  const settings = readSettings({
    ONCEHOOK_FAULTS: 'send.claimed=throw',
    DATABASE_URL: 'postgres://localhost/x',
    INBOXILI_API_KEY: 'ik_live_x',
  })
  expect(productionProblems(settings, service.config.current)).toContain(
    'ONCEHOOK_FAULTS is set: in production no process fails on purpose',
  )
})

describe('I2 I4 an acknowledgement that fails', () => {
  test.each([
    ['ingest.read', [500, 200], 0],
    ['ingest.verified', [500, 200], 0],
    ['ingest.committed', [500, 200], 1],
    ['ingest.acked', [200], 0],
  ] as const)('at %s is delivered again, and sent once', async (point, statuses, redeliveries) => {
    const fault = failAt(point)

    expect(await deliver()).toEqual(statuses)
    expect(fault).toHaveBeenCalledTimes(1)
    expect(await recovered()).toEqual(sentOnce)
    const { rows } = await pool.query(
      `select coalesce(again.redeliveries, 0) as redeliveries from webhook_events events left join webhook_redeliveries again on event = id where event_id = $1`,
      [`evt_${id}`],
    )
    expect(rows).toEqual([{ redeliveries }])
  })

  test('at ingest.inserted is delivered again, and sent once', async () => {
    const refusing = await onInsert(database, refuse(`new.event_id = 'evt_${id}'`), 'at commit')
    const first = await post(service, id)
    await refusing.remove()

    expect([first, ...(await deliver())]).toEqual([503, 200])
    expect(await recovered()).toEqual(sentOnce)
  })

  test('at ingest.commit_sent is delivered again, and sent once', async () => {
    const lost = commitOf('ingest.commit_sent')

    expect([await post(unsure, id), ...(await deliver())]).toEqual([503, 200])
    await lost
    expect(await recovered()).toEqual(sentOnce)
  })
})

describe('a job that fails', () => {
  // Those of the tests before, which ran by hand.
  beforeEach(() => pool.query('truncate pgboss.job'))

  /** Workers of the real queue until the job of this test's event is done. Until then none of a send comes to its own end. */
  async function work(process = (event: string) => service.process(event)) {
    const isDone = Promise.withResolvers<void>()
    const workers = await startWorkers(
      url,
      { processEvent: process, send: () => isDone.promise },
      1_000,
      createLog('silent', 'test'),
    )
    onTestFinished(() => {
      isDone.resolve()
      return workers.stop(1_000)
    })
    return until(async () => {
      // Whatever waits for another try need not wait long.
      await pool.query(`update pgboss.job set start_after = now() where state = 'retry'`)
      const { rows } = await pool.query<{ retries: number }>(
        `select retry_count as retries from pgboss.job join webhook_events on webhook_events.id::text = data #>> '{events,0,0}'
         where event_id = $1 and pgboss.job.state = 'completed'`,
        [`evt_${id}`],
      )
      return rows[0]
    }, 'the job is completed')
  }

  test.each(['job.fetched', 'job.before_complete'] as const)('I6 at %s runs again, and its email is sent once', async (point) => {
    await deliver()
    const fault = failAt(point)

    expect(await work()).toEqual({ retries: 1 })
    expect(fault).toHaveBeenCalledTimes(1)
    expect(await recovered()).toEqual(sentOnce)
  })

  test('I1 second_worker job.stolen_complete: of a job that two workers have, the one that lost it completes nothing', async () => {
    await deliver()
    const first = stopAt('job.before_complete')
    const process = vi.fn((event: string) => service.process(event))
    const done = work(process)
    await first.reached
    // It looks as if its worker had died.
    await pool.query(`update pgboss.job set heartbeat_on = now() - interval '1 hour' where state = 'active'`)
    const retries = await done
    first.letGo()

    expect(retries).toEqual({ retries: 1 })
    expect(process).toHaveBeenCalledTimes(2)
    expect(await recovered()).toEqual(sentOnce)
  })
})

describe('a send that fails', () => {
  beforeEach(async () => {
    await deliver()
    await service.drainEvents()
  })

  test.each([
    ['send.before_claim', 'queued', sentOnce],
    ['send.claimed', 'claimed', sentOnce],
    ['send.response_received', 'sending', unknown],
    ['send.recorded', 'sent', sentOnce],
  ] as const)('I1 at %s stays %s and ends as it must', async (point, state, end) => {
    const fault = failAt(point)

    await send()

    expect(fault).toHaveBeenCalledTimes(1)
    expect((await theEnd()).status).toBe(state)
    expect(await recovered()).toEqual(end)
  })

  test('I1 at send.claim_commit_sent is not called by whoever is not sure of the claim, and sent once', async () => {
    const lost = commitOf('send.claim_commit_sent')

    await send({ pool: unsurePool })
    await lost

    expect((await theEnd()).status).toBe('claimed')
    expect(callsTo(service, `${id}@example.com`)).toBe(0)
    expect(await recovered()).toEqual(sentOnce)
  })

  test('I7 at send.request_partial is unknown, and never called again', async () => {
    const lost = half.loseHalf()

    await send({ call: service.callAt(half.url) })
    await lost

    expect(await recovered()).toEqual({ ...unknown, accepted: 0 })
    expect(callsTo(service, `${id}@example.com`)).toBe(0)
  })

  test('I7 at send.request_sent is unknown, and never called again', async () => {
    sandbox.arm({ kind: 'cut_after_accept' })
    sandbox.armReports({ kind: 'never' })

    await send()

    expect(await recovered()).toEqual(unknown)
  })

  test('at send.record_commit_sent is recorded once', async () => {
    const lost = commitOf('send.record_commit_sent')

    await send({ pool: unsurePool })
    await lost

    expect(await recovered()).toEqual(sentOnce)
    expect(await sendRow(pool, keyOf(id), 'version')).toEqual({ version: 4 })
  })

  test('I8 at send.release_commit_sent frees the key, and the next trigger sends once', async () => {
    sandbox.arm({ kind: 'status', status: 422, code: 'sender_not_verified' })
    const lost = commitOf('send.release_commit_sent')

    await send({ pool: unsurePool })
    await lost
    const released = (await recovered()).status
    const { rows } = await pool.query<{ id: string }>('select id from webhook_events where event_id = $1', [`evt_${id}`])
    await service.replay(rows[0]?.id ?? '')

    expect(released).toBe('rejected')
    expect(await recovered()).toEqual({ ...sentOnce, calls: 2 })
  })

  test('I13 at sweep.commit_sent is swept once, and sent once', async () => {
    failAt('send.claimed')
    await send()
    await pool.query(`update email_sends set claimed_at = now() - interval '301 s' where dedupe_key = $1`, [keyOf(id)])
    const lost = commitOf('sweep.commit_sent')

    await expect(unsure.sweep(300_000)).rejects.toThrow()
    await lost

    expect(await sendRow(pool, keyOf(id), 'state', 'version')).toEqual({ state: 'queued', version: 3 })
    expect(await recovered()).toEqual(sentOnce)
  })

  test('I16 at ops.commit_sent is decided once, and whoever asks again is told so', async () => {
    sandbox.arm({ kind: 'cut_before_accept' })
    await send()
    const request = { decision: 'abandoned', version: 4, reason: 'paid twice', actor: 'ada', via: 'test' } as const
    const lost = commitOf('ops.commit_sent')

    await expect(decide(unsurePool, deps.enqueue, keyOf(id), request)).rejects.toThrow()
    await lost

    expect(await decide(pool, deps.enqueue, keyOf(id), request)).toEqual({ outcome: 'stale', status: 'abandoned', version: 5 })
    expect(await recovered()).toEqual({ ...sentOnce, status: 'abandoned', accepted: 0, audited: 1 })
  })

  test('I1 zombie: a worker that stands still at send.claimed for longer than a claim lasts calls nothing', async () => {
    const zombie = stopAt('send.claimed')
    const stuck = send()
    await zombie.reached
    const meanwhile = await recovered()
    zombie.letGo()

    expect(await stuck).toBe('nothing to do')
    expect([meanwhile, await theEnd()]).toEqual([sentOnce, sentOnce])
  })

  test('I1 late_answer: what comes after the sweep still counts, and nothing is called again', async () => {
    const late = stopAt('send.response_received')
    const stuck = send()
    await late.reached
    const meanwhile = await recovered()
    late.letGo()

    expect(await stuck).toBe('done')
    expect([meanwhile, await theEnd()]).toEqual([unknown, sentOnce])
  })

  test('parked.rescan after a call is made up for by the sweep', async () => {
    sandbox.arm({ kind: 'cut_after_accept', messageId: `m-${id}` })
    sandbox.armReports({ kind: 'never' })
    // While the call is under way the event can't be told to be this one's.
    const call = async (message: Parameters<typeof deps.call>[0]) => {
      const outcome = await deps.call(message)
      await report(service, id)
      await service.drainEvents()
      return outcome
    }
    // After the event, which is parked, and after the call.
    const fault = failAt('parked.rescan', 2)

    await send({ call })
    const crashed = (await theEnd()).status

    expect(fault).toHaveBeenCalledTimes(2)
    expect(crashed).toBe('needs_review')
    expect(await recovered()).toEqual({ ...sentOnce, status: 'delivered' })
  })
})

describe('a settlement that fails', () => {
  beforeEach(async () => {
    await deliver()
    await service.drain()
    await report(service, id)
  })
  const delivered = { ...sentOnce, status: 'delivered' }
  const isSettled = async () =>
    (await pool.query('select version, delivered_at is not null as is_told from email_sends where dedupe_key = $1', [keyOf(id)]))
      .rows

  test('at settle.locked leaves nothing, and settles when it runs again', async () => {
    const fault = failAt('settle.locked')

    const failures = await service.drain()

    expect([failures.length, fault.mock.calls.length]).toEqual([1, 1])
    expect(await isSettled()).toEqual([{ version: 4, is_told: false }])
    expect(await recovered()).toEqual(delivered)
  })

  test('at settle.commit_sent settles once', async () => {
    const lost = commitOf('settle.commit_sent')

    await unsure.drain()
    await lost

    const settled = await isSettled()
    expect(await recovered()).toEqual(delivered)
    expect(await isSettled()).toEqual(settled)
  })
})

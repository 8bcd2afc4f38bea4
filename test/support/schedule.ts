import { createHash } from 'node:crypto'
import { inTransaction } from '../../src/db.ts'
import { sweepEvents } from '../../src/events/sweeps.ts'
import { armFault, type FaultPoint } from '../../src/fault-points.ts'
import { findEventsWithoutJob } from '../../src/follow-ups/queue.ts'
import { checkInvariants } from '../../src/ops/invariants.ts'
import type { Fault } from '../../src/sandbox/inboxili/faults.ts'
import { type DecisionRequest, decide } from '../../src/sends/decide.ts'
import { switchMatching, switchSending } from '../../src/sends/hold.ts'
import type { Message } from '../../src/sends/message.ts'
import type { CallOutcome } from '../../src/sends/outcome.ts'
import { sendOnce } from '../../src/sends/send-once.ts'
import { rematch } from '../../src/sends/settle.ts'
import { type Actor, armActors, startActor } from './actors.ts'
import { chancesOf } from './chances.ts'
import { brokenAtRest, brokenKeys, brokenNow } from './invariants.ts'
import { signed } from './posting.ts'
import { hexHmac, INBOXILI_SECRET } from './service.ts'
import type { Stage } from './stage.ts'

/** What one schedule did, in order, and what it broke. */
export interface Played {
  steps: string[]
  broken: string[]
}

const STALE_SECONDS = 301
const REVIEW_SECONDS = 601
const recipients = ['ada@example.com', 'ada+shop@example.com', 'bo@example.com']

/** How the calls of a schedule end, with weights. */
const callEnds: readonly [
  weight: number,
  end: Fault['kind'] | 'refused' | '503' | '503_sent' | '422' | '401' | 'timeout' | 'timeout_sent',
][] = [
  [22, 'ok'],
  [12, 'null_id'],
  [12, 'cut_after_accept'],
  [6, 'cut_before_accept'],
  [5, '503_sent'],
  [4, '503'],
  [5, '422'],
  [5, 'rate_limited'],
  [3, 'odd_status'],
  [3, 'unreadable'],
  [3, 'refused'],
  [1, '401'],
  [1, 'timeout'],
  [1, 'timeout_sent'],
]

/** Plays the schedule of a seed on an empty stage. */
export async function play(stage: Stage, seed: number): Promise<Played> {
  await stage.clear()
  const armed = armActors()
  try {
    return await playSteps(stage, seed)
  } finally {
    armed.disarm()
    stage.line.mend()
  }
}

async function playSteps(stage: Stage, seed: number): Promise<Played> {
  const { pool, service, unsure, unsurePool, line, post, jobs } = stage
  const { deps, sandbox } = service
  const { below, chance, pick, weighted } = chancesOf(seed)

  const steps: string[] = []
  const broken: string[] = []
  const acknowledged: { source: string; sha256: string }[] = []
  const actors: Actor[] = []
  const firstCall = sandbox.ledger.length
  const ledger = () => sandbox.ledger.slice(firstCall)
  let isCalm = false
  let messages = 0
  /** How much later it is than the clock says, and was when each message was accepted. */
  let passedSeconds = 0
  const passedAt = new Map<string, number>()

  const facts = Array.from({ length: 4 }, (_, index) => ({
    id: `f${index + 1}`,
    to: chance(60) ? 'ada@example.com' : (pick(recipients) ?? ''),
    policy: weighted([
      [70, 'claim'],
      [15, 'prefer_duplicate'],
      [15, 'timestamp'],
    ] as const),
  }))
  /** Deliveries that were not acknowledged: their provider will come again. */
  const owed = new Map<string, () => Promise<number>>()

  // --- The world around the service --------------------------------------------------------------------------------

  const call = async (message: Message): Promise<CallOutcome> => {
    const end = isCalm ? 'ok' : weighted(callEnds)
    messages += 1
    const messageId = `m${seed}-${messages}`
    steps.push(`  the call for ${message.subject} ends: ${end}`)
    passedAt.set(messageId, passedSeconds)
    const faults: Record<string, Fault> = {
      '503': { kind: 'status', status: 503 },
      '503_sent': { kind: 'status', status: 503, accepted: true, messageId },
      '422': { kind: 'status', status: 422 },
      '401': { kind: 'status', status: 401 },
      rate_limited: { kind: 'rate_limited', retryAfter: 200 },
      cut_before_accept: { kind: 'cut_before_accept' },
      timeout: { kind: 'hold', accepted: false },
      timeout_sent: { kind: 'hold', messageId },
    }
    if (end === 'refused') return service.callAt('http://127.0.0.1:1')(message)
    sandbox.arm(faults[end] ?? ({ kind: end, messageId } as Fault))
    const outcome = await (end.startsWith('timeout') ? service.callAt(sandbox.url, 80) : deps.call)(message)
    sandbox.releaseHeld()
    return outcome
  }

  /** Posts until it is acknowledged, now or later. */
  const deliver = async (source: 'stripe' | 'inboxili', name: string, body: string, copies = 1, crash?: FaultPoint) => {
    const headers = () =>
      source === 'stripe' ? signed.stripe(body, Date.now()) : { 'x-inboxili-signature': hexHmac(body, INBOXILI_SECRET) }
    const once = async () => {
      const { status } = await post(`/webhooks/${source}`, body, headers())
      if (status === 200) {
        acknowledged.push({ source, sha256: createHash('sha256').update(body).digest('hex') })
        owed.delete(body)
      } else owed.set(body, once)
      return status
    }
    const statuses = await withCrash(crash, () => Promise.all(Array.from({ length: copies }, once)))
    steps.push(`${source} posts ${name}${crash ? `, crash at ${crash}` : ''} → ${statuses.sort().join(' ')}`)
  }

  async function withCrash<Result>(point: FaultPoint | undefined, work: () => Promise<Result>): Promise<Result> {
    if (!point) return work()
    const fault = armFault(point, (at) => {
      fault.disarm()
      throw new Error(`crash at ${at}`)
    })
    return work().finally(fault.disarm)
  }

  const pass = async (seconds: number) => {
    passedSeconds += seconds
    await stage.pass(seconds)
    steps.push(`${seconds} s pass`)
  }

  // --- The service's own work --------------------------------------------------------------------------------------

  interface Job {
    id: string
    key: string | null
    /** Empty in a job that sends. */
    events: string[]
  }
  const dueJobs = async (): Promise<Job[]> => {
    const { rows } = await pool.query<Job>(
      `select id, data ->> 'key' as key, array(
           select part ->> 0 from jsonb_array_elements(data -> 'events') part union all select data ->> 'event' where data ? 'event'
         ) as events
       from pgboss.job where state < 'completed' and start_after <= now()
       order by data ->> 'key', 3, start_after, created_on, id`,
    )
    return rows
  }
  const complete = ({ id }: Job) =>
    pool.query(`update pgboss.job set state = 'completed', completed_on = now() where id = $1`, [id])

  const process = async (job: Job, workers: number, crash?: FaultPoint | RegExp) => {
    const lost = crash instanceof RegExp
    if (lost) void line.loseCommitOf(crash)
    const run = async () => {
      for (const event of job.events) await (lost ? unsure : service).process(event)
      await complete(job)
      return 'done'
    }
    const ends = await withCrash(lost ? undefined : crash, () =>
      Promise.all(Array.from({ length: workers }, () => run().catch(() => 'failed'))),
    )
    line.mend()
    steps.push(`process event ${job.events.join(' and ')}${crash ? `, crash at ${crash}` : ''} → ${ends.sort().join(' ')}`)
  }

  const sweep = async (crash?: RegExp) => {
    if (crash) {
      void line.loseCommitOf(crash)
      await unsure.sweep(STALE_SECONDS * 1000 - 1000).catch(() => undefined)
      line.mend()
      steps.push('sweep, its commit in doubt')
      return true
    }
    const found = await service.sweep(STALE_SECONDS * 1000 - 1000)
    await sweepEvents(pool, findEventsWithoutJob, jobs.enqueueEvents)
    const changed = Object.entries(found).filter(([, count]) => count > 0)
    steps.push(`sweep → ${changed.map(([what, count]) => `${count} ${what}`).join(', ') || 'nothing'}`)
    broken.push(...(await brokenNow(pool, true)))
    return changed.length > 0
  }

  const startSend = async () => {
    const due = (await dueJobs()).filter((job) => job.key !== null)
    const job = pick(due)
    if (!job) return
    const isUnsure = chance(4)
    if (isUnsure) void line.loseCommitOf(chance(50) ? /^claim-send / : /^record-send /)
    const actor = await startActor(`worker ${actors.length + 1} of ${job.key}`, async () => {
      await sendOnce({ ...deps, call, pool: isUnsure ? unsurePool : pool }, job.key ?? '')
      await complete(job)
    })
    actors.push(actor)
    steps.push(`${actor.name} starts${isUnsure ? ', a commit of it in doubt' : ''} → ${actor.at ?? 'over'}`)
  }

  const standing = () => actors.filter(({ at }) => at !== undefined)
  const goOn = async (actor: Actor | undefined, crashes: boolean) => {
    if (!actor) return
    const from = actor.at
    await actor.next(crashes)
    steps.push(`${actor.name} ${crashes ? 'crashes' : 'goes on'} from ${from} → ${actor.at ?? 'over'}`)
    if (chance(40)) await goOn(actor.at && actor, false)
  }

  // --- What people do ----------------------------------------------------------------------------------------------

  const by = { reason: 'scheduled', actor: 'ada', via: 'test' }
  const person = async () => {
    const { rows } = await pool.query<{ dedupe_key: string; state: string; version: number }>(
      `select dedupe_key, state, version from email_sends where state in ('needs_review', 'sent', 'abandoned')
         and (state = 'needs_review' or $1) order by dedupe_key`,
      [chance(15)],
    )
    const send = pick(rows)
    if (!send) return
    const { rows: bound } = await pool.query<{ message_id: string }>(
      'select message_id from send_attempts where message_id is not null',
    )
    const unbound = ledger().find(
      ({ accepted, message, messageId }) =>
        accepted && message?.subject === send.dedupe_key && !bound.some(({ message_id }) => message_id === messageId),
    )
    const decision =
      send.state !== 'needs_review'
        ? ({ decision: 'reopen' } as const)
        : weighted([
            [25, { decision: 'sent' }],
            [unbound ? 30 : 0, { decision: 'sent', messageId: unbound?.messageId ?? '' }],
            [20, { decision: 'abandoned' }],
            [30, { decision: 'retry' }],
          ] as const)
    const request: DecisionRequest = { ...decision, ...by, version: send.version - (chance(15) ? 1 : 0) }
    const isUnsure = chance(5)
    if (isUnsure) void line.loseCommitOf(/^decide-send /)
    const decided = await decide(isUnsure ? unsurePool : pool, deps.enqueue, send.dedupe_key, request).catch(() => undefined)
    line.mend()
    if (decided?.outcome === 'decided' && request.version !== send.version) broken.push('I16 a stale decision was carried out')
    if (decided?.outcome === 'decided') await rematch(pool, decided.matchKey, true)
    steps.push(
      `a person decides ${send.dedupe_key} (${send.state}): ${JSON.stringify(decision)} → ${decided?.outcome ?? 'in doubt'}`,
    )
  }

  const switchIt = async (paused: boolean) => {
    const { rows } = await pool.query<{ version: number }>('select version from sending_control')
    await inTransaction(pool, (tx) => switchSending(tx, { paused, ...by, version: rows[0]?.version ?? 0 }))
    steps.push(`a person ${paused ? 'holds sending' : 'lets sending go on'}`)
  }

  // --- The steps ---------------------------------------------------------------------------------------------------

  const payment = async (fact = pick(facts)) => {
    if (!fact) return
    // Two events may speak of one fact, and one event may come with another body.
    const id = `evt_${fact.id}${pick(['a', 'a', 'b'])}`
    const body = JSON.stringify({
      id,
      type: 'invoice.paid',
      livemode: true,
      ...(chance(6) && { note: 'other' }),
      data: { object: fact },
    })
    const crash = chance(20) ? pick(['ingest.read', 'ingest.verified', 'ingest.committed'] as const) : undefined
    await deliver('stripe', id, body, 1 + below(3), crash)
  }

  const deliveryEvent = async () => {
    const accepted = pick(ledger().filter((it) => it.accepted))
    if (!accepted?.messageId) return
    const event = weighted([
      [60, { event: 'delivered' }],
      [12, { event: 'bounced', type: 'hard' }],
      [12, { event: 'bounced', type: 'soft' }],
      [10, { event: 'complained' }],
      [6, { event: 'opened' }],
    ])
    const ago = passedSeconds - (passedAt.get(accepted.messageId) ?? 0)
    const timestamp = new Date(accepted.atMs - ago * 1000 + below(3) * 60_000).toISOString()
    const says = weighted([
      [20, { message_id: accepted.messageId }],
      [10, { message_id: accepted.messageId, to: accepted.to }],
      [65, { message_id: accepted.messageId, to: accepted.to, timestamp }],
      [5, { to: accepted.to, timestamp }],
    ] as const)
    await deliver('inboxili', `${event.event} ${JSON.stringify(says)}`, JSON.stringify({ ...event, ...says }), chance(20) ? 2 : 1)
  }

  const stranger = async () => {
    const says = { event: 'delivered', message_id: `stranger-${seed}-${steps.length}`, to: 'stranger@example.com' }
    await deliver('inboxili', 'an event of a stranger', JSON.stringify(says))
  }

  const eventJob = async () => {
    const job = pick((await dueJobs()).filter(({ events }) => events.length > 0))
    const crash = weighted<FaultPoint | RegExp | undefined>([
      [80, undefined],
      [8, 'settle.locked'],
      [6, 'parked.rescan'],
      [3, /^store-report /],
      [3, /^trigger-send /],
    ])
    if (job) await process(job, crash instanceof RegExp ? 1 : 1 + below(2), crash)
  }

  const loseJob = async () => {
    const job = pick(await dueJobs())
    if (job) await pool.query('delete from pgboss.job where id = $1', [job.id])
    if (job) steps.push(`the job of ${job.key ?? job.events.join(' and ')} is lost`)
  }

  const replay = async () => {
    const { rows } = await pool.query<{ id: string }>(`select id from webhook_events where source = 'stripe' order by id`)
    const event = pick(rows)
    if (event) steps.push(`replay of event ${event.id} → ${(await service.replay(event.id)).outcome}`)
  }

  const look = async () => {
    const { rows } = await pool.query<{ version: number }>('select version from sending_control')
    await inTransaction(pool, (tx) => switchMatching(tx, { mode: 'auto', ...by, version: rows[0]?.version ?? 0 }))
    steps.push('a person has looked at the events of strangers')
  }

  const moves: readonly [number, () => Promise<unknown>][] = [
    [4, () => payment()],
    [16, eventJob],
    [25, startSend],
    [45, () => goOn(pick(standing()), chance(12))],
    [12, deliveryEvent],
    [0.4, stranger],
    [7, () => sweep(chance(8) ? /'never_called'|'worker stopped during send'/ : undefined)],
    [
      6,
      () =>
        pass(
          weighted([
            [2, 61],
            [6, STALE_SECONDS],
            [3, REVIEW_SECONDS],
            [0.5, 90_000],
          ] as const),
        ),
    ],
    [22, person],
    [3, replay],
    [0.7, () => switchIt(chance(30))],
    [0.5, look],
    [2, loseJob],
  ]
  for (const fact of facts) await payment(fact)
  // Most facts are processed by now: what may go wrong most is yet to come.
  for (const job of await dueJobs()) if (job.events.length > 0 && chance(70)) await process(job, 1)
  for (let left = 30 + below(30); left > 0; ) {
    const before = steps.length
    await weighted(moves)()
    // What found nothing to do is no step; but a schedule must end.
    left -= steps.length > before ? 1 : 0.1
    if (steps.length > before) broken.push(...(await brokenNow(pool, false)))
  }

  // --- All comes to rest -------------------------------------------------------------------------------------------

  steps.push('--- all comes to rest')
  isCalm = true
  for (let actor = standing()[0]; actor; actor = standing()[0]) await goOn(actor, chance(40))
  line.mend()
  for (const again of [...owed.values()]) if ((await again()) !== 200) broken.push('a redelivery is not acknowledged')
  await switchIt(false)
  await settleDown()
  // Some events come only now, others never.
  for (const { accepted, messageId, to, atMs } of ledger()) {
    if (!accepted || !messageId || !chance(60)) continue
    const ago = passedSeconds - (passedAt.get(messageId) ?? 0)
    const says = { event: 'delivered', message_id: messageId, to, timestamp: new Date(atMs - ago * 1000 + 1000).toISOString() }
    await deliver('inboxili', `delivered ${messageId}`, JSON.stringify(says))
  }
  await settleDown()

  /** Sweeps and jobs until none is left; held sends go out one probe at a time. */
  async function settleDown() {
    for (let round = 0; round < 20; round += 1) {
      await pass(REVIEW_SECONDS)
      const isSwept = await sweep()
      const due = await dueJobs()
      for (const job of due) {
        if (job.events.length > 0) await process(job, 1)
        else if (job.key !== null) {
          await sendOnce({ ...deps, call }, job.key)
          await complete(job)
        }
      }
      const { rows } = await pool.query(
        `select from email_sends where state in ('queued', 'claimed', 'sending') or (state = 'rejected' and send_after is not null)
         union all select from webhook_events where status = 'pending'`,
      )
      if (due.length === 0 && !isSwept && rows.length === 0) return
    }
  }

  broken.push(...(await brokenAtRest(pool, { ledger: ledger(), acknowledged })))
  for (const { invariant, name, subjects } of await checkInvariants(pool, STALE_SECONDS * 1000))
    broken.push(`${invariant} ${name}: ${subjects.join(' ')}`)
  const { rows: rejected } = await pool.query<{ dedupe_key: string; message: Message }>(
    `select dedupe_key, message from email_sends where state = 'rejected' and policy <> 'timestamp'`,
  )
  broken.push(
    ...(await brokenKeys(
      rejected.map((row) => row.dedupe_key),
      (name) => stage.wouldQueue(name, rejected.find((row) => row.dedupe_key === name)?.message as Message),
    )),
  )
  return { steps, broken }
}

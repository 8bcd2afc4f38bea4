import { createHmac } from 'node:crypto'
import express, { type Express } from 'express'
import pg from 'pg'
import { afterAll } from 'vitest'
import { Inboxili } from '#inboxili'
import { type Config, readConfig, type UserConfig } from '../../src/config.ts'
import type { RemoteKeyStore } from '../../src/events/receive.ts'
import { createRecorder } from '../../src/events/record.ts'
import { createRemoteKeys } from '../../src/events/remote-keys.ts'
import { replayEvent } from '../../src/events/replay.ts'
import { type EventRoutesDeps, eventRoutes } from '../../src/events/routes.ts'
import { findSendsWithoutJob, openJobs } from '../../src/follow-ups/queue.ts'
import { isWanted, processEvent } from '../../src/follow-ups/rules.ts'
import { createLog } from '../../src/log.ts'
import { type InboxiliSandbox, startInboxiliSandbox } from '../../src/sandbox/inboxili.ts'
import { outcomeOf } from '../../src/sends/outcome.ts'
import { type SendDeps, sendOnce } from '../../src/sends/send-once.ts'
import { sweepSends } from '../../src/sends/sweeps.ts'
import type { TestDatabase } from './database.ts'

export const API_KEY = 'ik_live_test123'
export const INBOXILI_SECRET = 'inbx_secret_of_the_tests'

/** The service in this process, on a real database and a real email API stand-in, with its jobs run by hand. */
export interface TestService {
  app: Express
  /** What its webhook routes are made of. */
  eventDeps: EventRoutesDeps
  config: { current: Config }
  sandbox: InboxiliSandbox
  deps: SendDeps
  recorder: ReturnType<typeof createRecorder>
  /** Milliseconds; what the verifier takes for the present. */
  clock: { now: number }
  /** Processes every pending event and sends every due email, as the workers would; answers the errors of failed jobs. */
  drain(): Promise<unknown[]>
  /** The first half of that. */
  drainEvents(): Promise<unknown[]>
  /** The call of the email API, at this address and within this time. */
  callAt(baseUrl: string, timeout?: number): SendDeps['call']
  process(event: string, isLastTry?: boolean): Promise<void>
  send(key: string): Promise<unknown>
  replay(id: string): ReturnType<typeof replayEvent>
  sweep(staleAfterMs: number): ReturnType<typeof sweepSends>
}

export async function testService(
  database: TestDatabase,
  userConfig: UserConfig,
  options: { callTimeoutMs?: number; keys?: RemoteKeyStore } = {},
): Promise<TestService> {
  const { pool, url } = database
  const config = {
    current: readConfig({
      ...userConfig,
      sources: { inboxili: { provider: 'inboxili', secrets: [INBOXILI_SECRET] }, ...userConfig.sources },
    }),
  }
  const sandbox = await startInboxiliSandbox({ apiKey: API_KEY, sendsPerMinute: 100_000 })
  afterAll(() => sandbox.close())
  const log = createLog('silent', 'test')
  const jobs = await openJobs(url)
  const recorder = createRecorder(pool, jobs)
  const clock = { now: Date.now() }
  const wanted = (source: Parameters<typeof isWanted>[1], type: string | null) => isWanted(config.current, source, type)
  const callAt = (baseUrl: string, timeout = options.callTimeoutMs ?? 5_000): SendDeps['call'] => {
    const inboxili = new Inboxili(API_KEY, { baseUrl, timeout, maxRetries: 0 })
    return (message) =>
      inboxili.emails
        .send(message as Parameters<typeof inboxili.emails.send>[0])
        .then((answer) => outcomeOf({ answer }, new Date()))
        .catch((thrown: unknown) => outcomeOf({ thrown }, new Date()))
  }
  const deps: SendDeps = {
    pool,
    call: callAt(sandbox.url),
    takeSlot: async () => ({ waitMs: 0, at: performance.now() }),
    holdSlots: async () => undefined,
    enqueue: jobs.enqueueSends,
    probeEveryMs: 60_000,
    isExclusive: () => config.current.account === 'exclusive',
    log,
    stopping: new AbortController().signal,
  }
  const process = (event: string, isLastTry = false) =>
    processEvent({ pool, config: () => config.current, enqueue: jobs.enqueueSends, log }, event, isLastTry)

  const drainEvents = async () => {
    const failures: unknown[] = []
    const { rows } = await pool.query<{ id: string }>(`select id from webhook_events where status = 'pending' order by id`)
    for (const { id } of rows) await process(id).catch((error: unknown) => failures.push(error))
    return failures
  }

  const eventDeps: EventRoutesDeps = {
    recorder,
    isWanted: wanted,
    now: () => clock.now,
    config: () => config.current,
    log,
    acknowledged: () => undefined,
    fingerprints: () => [],
    tallies: { answered: () => undefined, verified: () => undefined, stop: async () => undefined },
    refusals: { refused: () => undefined },
    keys: options.keys ?? withoutNetwork(),
  }
  const app = express().use(eventRoutes(eventDeps))

  return {
    app,
    eventDeps,
    config,
    sandbox,
    deps,
    recorder,
    clock,
    process,
    send: (key) => sendOnce(deps, key),
    replay: (id) =>
      replayEvent(
        { pool, recorder, config: () => config.current, isWanted: wanted, enqueueEvents: jobs.enqueueEvents },
        id,
        'tester',
        'test',
      ),
    sweep: (staleAfterMs) =>
      sweepSends(pool, jobs.enqueueSends, { staleAfterMs, reviewAfterMs: 600_000, isExclusive: true }, findSendsWithoutJob),
    callAt,
    drainEvents,
    async drain() {
      const failures = await drainEvents()
      const { rows: sends } = await pool.query<{ dedupe_key: string }>(
        `select dedupe_key from email_sends where state = 'queued' and (send_after is null or send_after <= now()) order by queued_at`,
      )
      for (const { dedupe_key } of sends) await sendOnce(deps, dedupe_key).catch((error: unknown) => failures.push(error))
      return failures
    },
  }
}

/** Keys of the providers as far as they are known beforehand; none can be fetched. */
export function withoutNetwork(): RemoteKeyStore {
  return createRemoteKeys({ log: createLog('silent', 'test'), fetch: () => Promise.reject(new Error('no network in the tests')) })
}

/** A Stripe-Signature header, made here and not by the code under test. */
export function stripeSignature(body: string | Buffer, secret: string, seconds: number): string {
  const mac = createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex')
  return `t=${seconds},v1=${mac}`
}

export function hexHmac(body: string | Buffer, secret: string): string {
  return createHmac('sha256', secret).update(body).digest('hex')
}

/** A client of its own, outside the pool under test. */
export async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  return client
}

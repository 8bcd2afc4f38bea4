import { createHash } from 'node:crypto'
import { once } from 'node:events'
import http, { type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import express, { type Express } from 'express'
import pg from 'pg'
import { pino } from 'pino'
import { afterAll, onTestFinished } from 'vitest'
import { readConfig, type UserConfig } from '../../src/config.ts'
import type { RemoteKeyStore } from '../../src/events/receive.ts'
import { createRecorder, type Recorder } from '../../src/events/record.ts'
import { type EventRoutesDeps, eventRoutes } from '../../src/events/routes.ts'
import { openJobs } from '../../src/follow-ups/queue.ts'
import { isWanted } from '../../src/follow-ups/rules.ts'
import type { TestDatabase } from './database.ts'
import { hexHmac, stripeSignature, withoutNetwork } from './service.ts'

/** Body H of the cases: 105 bytes. */
export const BODY_H = Buffer.from(
  '{"id":"evt_1","type":"invoice.paid","note":"Zoë 😀 \\u00e9 a\\/b","amount":10.00,"big":9007199254740993}',
)
export const BODY_H_MAC = '56e8271033125c6fb0ebbac2ccede0f9d6b79c9c07def3a2935fb6d76ffd9133'
export const BODY_H_SHA256 = '69e1f3b54d936f9030efd6c166bbdd39e3640c602cbc5775e309592daac396e5'
export const STRIPE_A = '4bdd2158024e751bf5cd48f924c216930ccae5dbb8e8afc58e70a62a478977e7'
export const STRIPE_B = '69c62c9164fd91b6a4dd4bb8cb6da96c5192077fd8709b86775d796ef23095e9'
const STANDARD_SECRET = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='
export const STANDARD_MAC = 'v1,7EIBjybjm/NLt1O9Z5Ymm9Ett/xtFjTajoGGcyza9ZA='

/** A source of each kind, with the secrets of the cases. */
export const sources = {
  stripe: { provider: 'stripe', secrets: ['whsec_test_A'] },
  generic: {
    provider: 'generic',
    secrets: ['secret_test'],
    header: 'X-Signature',
    algorithm: 'sha256',
    encoding: 'hex',
    id: 'id',
    type: 'type',
  },
  github: { provider: 'github', secrets: ['gh_test'] },
  gocardless: { provider: 'gocardless', secrets: ['gc_test'] },
  inboxili: { provider: 'inboxili', secrets: ['inbx_test'] },
  standard: { provider: 'standard-webhooks', secrets: [STANDARD_SECRET] },
} satisfies UserConfig['sources']

type Bytes = string | Buffer

/** The headers by which each source's sender would sign a body, made here and not by the code under test. */
export const signed = {
  stripe: (body: Bytes, milliseconds: number, secret = 'whsec_test_A') => ({
    'stripe-signature': stripeSignature(body, secret, Math.floor(milliseconds / 1000)),
  }),
  generic: (body: Bytes) => ({ 'x-signature': hexHmac(body, 'secret_test') }),
  github: (body: Bytes, delivery: string, event = 'push') => ({
    'x-hub-signature-256': `sha256=${hexHmac(body, 'gh_test')}`,
    'x-github-delivery': delivery,
    'x-github-event': event,
  }),
  gocardless: (body: Bytes) => ({ 'webhook-signature': hexHmac(body, 'gc_test') }),
  inboxili: (body: Bytes) => ({ 'x-inboxili-signature': hexHmac(body, 'inbx_test') }),
}

export interface Answer {
  status: number
  headers: IncomingHttpHeaders
  text: string
  /** The JSON of the answer; empty when it is none. */
  json: { status?: string; code?: string; events?: { id: string; type: string | null; status: string }[] }
}

type Post = (path: string, body: Bytes, headers?: OutgoingHttpHeaders) => Promise<Answer>

export interface Listening {
  port: number
  /** Posts these bytes with these headers and no others; a header with a list goes out as often. */
  post: Post
  send(method: string, path: string, headers?: OutgoingHttpHeaders, parts?: readonly Bytes[]): Promise<Answer>
}

/** The app on a port of its own, closed after the file. */
export async function listen(app: Express, options: http.ServerOptions = {}): Promise<Listening> {
  // Node's own 5 s can run out under a busy machine between two posts, one of which then meets a closing connection.
  const server = http.createServer({ keepAliveTimeout: 60_000, ...options }, app)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const agent = new http.Agent({ keepAlive: true, maxSockets: 200 })
  afterAll(() => {
    agent.destroy()
    server.closeAllConnections()
    server.close()
  })
  const send: Listening['send'] = (method, path, headers = {}, parts = []) =>
    new Promise((resolve, reject) => {
      const request = http.request({ port, agent, method, path, headers }, (response) => {
        const chunks: Buffer[] = []
        response.on('data', (chunk: Buffer) => chunks.push(chunk))
        response.on('error', reject)
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString()
          const json = text.startsWith('{') ? (JSON.parse(text) as Answer['json']) : {}
          resolve({ status: response.statusCode ?? 0, headers: response.headers, text, json })
        })
      })
      request.on('error', reject)
      for (const part of parts) request.write(part)
      request.end()
    })
  return {
    port,
    send,
    post: (path, body, headers) => send('POST', path, { 'content-length': Buffer.byteLength(body), ...headers }, [body]),
  }
}

export interface Ingest extends Listening {
  config: { current: ReturnType<typeof readConfig> }
  clock: { now: number }
  recorder: Recorder
  /** Lines of the log, parsed. */
  logged: Record<string, unknown>[]
  /** Deliveries that have reached the recorder. */
  arrived(): number
}

/** The webhook routes alone, on a port of their own, with what they log; nothing processes the events. */
export async function ingest(
  database: TestDatabase,
  userConfig: UserConfig = { sources },
  {
    keys = withoutNetwork(),
    recorder: given,
    underWay = () => undefined,
    ...options
  }: http.ServerOptions & { keys?: RemoteKeyStore } & Partial<Pick<EventRoutesDeps, 'recorder' | 'underWay'>> = {},
): Promise<Ingest> {
  const config = { current: readConfig(userConfig) }
  const clock = { now: Date.now() }
  const logged: Ingest['logged'] = []
  const inner = given ?? createRecorder(database.pool, await openJobs(database.url))
  let arrivals = 0
  const recorder: Recorder = {
    record: (delivery, provider) => {
      arrivals += 1
      return inner.record(delivery, provider)
    },
    delayMs: inner.delayMs,
  }
  const app = express()
  app.use(
    eventRoutes({
      recorder,
      isWanted: (source, type) => isWanted(config.current, source, type),
      now: () => clock.now,
      config: () => config.current,
      log: pino(
        { formatters: { level: (level) => ({ level }) } },
        { write: (line) => logged.push(JSON.parse(line) as Record<string, unknown>) },
      ),
      acknowledged: () => undefined,
      underWay,
      fingerprints: () => [],
      tallies: { answered: () => undefined, verified: () => undefined, stop: async () => undefined },
      refusals: { refused: () => undefined },
      keys,
    }),
  )
  return { ...(await listen(app, options)), config, clock, recorder: inner, logged, arrived: () => arrivals }
}

export function sha256Hex(body: Bytes): string {
  return createHash('sha256').update(body).digest('hex')
}

export interface EventRow {
  id: string
  source: string
  event_id: string
  id_basis: string
  type: string | null
  status: string
  error: string | null
  livemode: boolean | null
  body: Buffer | null
  body_sha256: Buffer
  headers: Record<string, string>
  redeliveries: number
  benign_variants: number
}

/** All stored events, in the order of their rows. */
export async function storedEvents({ pool }: TestDatabase): Promise<EventRow[]> {
  const { rows } = await pool.query<EventRow>(
    `select events.*, coalesce(again.redeliveries, 0) as redeliveries, coalesce(again.benign_variants, 0) as benign_variants
     from webhook_events events left join webhook_redeliveries again on again.event = events.id order by id`,
  )
  return rows
}

/** How many rows each table has that a delivery may write. */
export async function countRows({ pool }: TestDatabase) {
  const { rows } = await pool.query<{ events: number; bodies: number; conflicts: number; jobs: number; sends: number }>(
    `select (select count(*)::int from webhook_events) as events, (select count(*)::int from webhook_bodies) as bodies,
       (select count(*)::int from webhook_conflicts) as conflicts, (select coalesce(sum(coalesce(jsonb_array_length(data -> 'events'), 1)), 0)::int from pgboss.job) as jobs,
       (select count(*)::int from email_sends) as sends`,
  )
  return rows[0]
}

/** Takes away all that a test has stored, so that the next one of the file starts with nothing. */
export async function emptyTables({ pool }: TestDatabase): Promise<void> {
  await pool.query(
    'truncate webhook_events, webhook_redeliveries, webhook_bodies, webhook_conflicts, delivery_reports, follow_ups, email_sends, send_attempts, settlements, pgboss.job cascade',
  )
}

export interface Held {
  /** Inserts that wait. */
  waiting(): Promise<number>
  /** Ends the connections of the inserts that wait. */
  terminate(): Promise<void>
  release(): Promise<void>
}

/** Makes inserts of events wait until `release`, in a transaction of its own. */
export async function holdInserts(url: string): Promise<Held> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query('begin')
  await client.query('lock table webhook_events in share mode')
  let isOver = false
  const release = async () => {
    if (isOver) return
    isOver = true
    await client.query('rollback')
    await client.end()
  }
  onTestFinished(release)
  // Databases that were copied from one template number their tables alike.
  const blocked = `from pg_locks join pg_database on pg_database.oid = pg_locks.database
    where datname = current_database() and relation = 'webhook_events'::regclass and not granted`
  return {
    async waiting() {
      const { rows } = await client.query<{ count: number }>(`select count(*)::int ${blocked}`)
      return rows[0]?.count ?? 0
    },
    terminate: async () => void (await client.query(`select pg_terminate_backend(pid) ${blocked}`)),
    release,
  }
}

/** Runs PL/pgSQL on each insert of an event, until `remove`. */
export async function onInsert({ pool }: TestDatabase, code: string, when: 'at once' | 'at commit' = 'at once') {
  await pool.query(`create function on_insert() returns trigger language plpgsql as $$ begin ${code} return new; end $$`)
  await pool.query(
    when === 'at once'
      ? 'create trigger on_insert before insert on webhook_events for each row execute function on_insert()'
      : `create constraint trigger on_insert after insert on webhook_events deferrable initially deferred
         for each row execute function on_insert()`,
  )
  const remove = async () => void (await pool.query('drop function if exists on_insert cascade'))
  onTestFinished(remove)
  return { remove }
}

/** The code for `onInsert` by which the database refuses each event that meets the condition. */
export const refuse = (condition: string) => `if ${condition} then raise exception 'refused by the test'; end if;`

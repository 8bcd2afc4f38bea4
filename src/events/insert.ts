import type pg from 'pg'
import { queryBriefly } from '../db.ts'
import { type Parameter, runPrepared } from './prepared.ts'
import { eventKey, type Item } from './store.ts'

/** What is stored of an event beside its bytes. */
const facts: readonly Column[] = [
  { name: 'source', type: 'text', of: ({ delivery }) => delivery.source },
  { name: 'event_id', type: 'text', of: ({ event }) => event.id },
  { name: 'id_basis', type: 'text', of: ({ event }) => event.idBasis },
  { name: 'id_signed', type: 'bool', of: ({ event }) => event.idIsSigned },
  { name: 'type', type: 'text', of: ({ event }) => event.type },
  { name: 'livemode', type: 'bool', of: ({ event }) => event.livemode },
  { name: 'occurred_at', type: 'timestamptz', of: ({ event }) => event.occurredAt },
  { name: 'status', type: 'text', of: ({ event }) => event.status },
  { name: 'error', type: 'text', of: ({ event }) => event.error },
  { name: 'headers', type: 'jsonb', of: ({ delivery }) => JSON.stringify(delivery.headers) },
  { name: 'secret_index', type: 'smallint', of: ({ delivery }) => delivery.secretIndex },
  { name: 'secret_fingerprint', type: 'text', of: ({ delivery }) => delivery.secretFingerprint },
  { name: 'object_ref', type: 'text', of: ({ event }) => event.objectRef },
  { name: 'replay_key', type: 'text', of: ({ event }) => event.replayKey },
]
const bytes: readonly Column[] = [
  { name: 'body_sha256', type: 'bytea', of: ({ delivery }) => delivery.sha256 },
  { name: 'body', type: 'bytea', of: ({ delivery }) => delivery.body },
]
/** What the jobs are made from. */
const forJobs: readonly Column[] = [
  { name: 'job', type: 'int', of: (_, job) => job },
  { name: 'request', type: 'text', of: ({ delivery }) => delivery.requestId ?? null },
]

interface Column {
  name: string
  type: string
  /** `job` is the number of the event's job among those of the batch, null where it gets none. */
  of(item: Item, job: number | null): Parameter
}

const listed = (columns: readonly Column[]) => columns.map(({ name }) => name).join(', ')
const stored = listed([...facts, ...bytes])

/** So many events of one source share a job where they come at once. They are processed one after the other. */
const MOST_EVENTS_IN_JOB = 8

/** So many rows the prepared inserts have: a batch takes the smallest that holds it and leaves the other rows null. */
const SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]

/** The inserts of a batch: each is one statement and so one transaction. */
export interface InsertStatements {
  /** For deliveries of one event each, by the number of rows. A value of its own for each takes both sides less time than arrays. */
  rows: readonly SizedInsert[]
  /** For any deliveries and any number of events, with the shared bytes of those that hold several. */
  arrays: string
}

interface SizedInsert {
  size: number
  plain: string
  withJobs: string
}

/** `on conflict do nothing` has no target: a clash on any unique key makes a redelivery of it. */
export function insertStatements(eventJobsInsert: string, wake: string): InsertStatements {
  const insert = (values: string) => `insert into webhook_events (${stored}) ${values} on conflict do nothing`
  const rowsOf = (columns: readonly Column[], size: number) => {
    const row = (number: number) =>
      columns.map(({ type }, index) => `$${number * columns.length + index + 1}::${type}`).join(', ')
    return `(values ${Array.from({ length: size }, (_, number) => `(${row(number)})`).join(', ')})`
  }
  // A job costs more than an event.
  const jobs = `new_jobs as (
      select json_build_object('events', json_agg(json_build_array(id::text, request) order by id)) as data, source
      from inserted join given using (source, event_id) where job is not null group by source, job
    ), jobs as (${eventJobsInsert})
    select source, event_id, (select ${wake} where exists (select from new_jobs)) as woken from inserted`
  const inserted = (from: string) => `inserted as (
      ${insert(`select ${stored} from ${from}`)} returning id, source, event_id, body_sha256
    )`

  const plain = (size: number) => {
    const columns = [...facts, ...bytes]
    return `${insert(`select * from ${rowsOf(columns, size)} as given (${listed(columns)}) where source is not null`)}
      returning source, event_id`
  }
  const withJobs = (size: number) => {
    const columns = [...facts, ...bytes, ...forJobs]
    return `with given (${listed(columns)}) as ${rowsOf(columns, size)}, ${inserted('given where source is not null')}, ${jobs}`
  }
  // The bodies and hashes come as one value each, `$1` and `$2`.
  const columns = [...facts, ...forJobs]
  const arrays = [...columns.map(({ type }) => type), 'int', 'int', 'int', 'bool'].map(
    (type, index) => `$${index + 3}::${type}[]`,
  )
  const body = 'substring($1::bytea from body_offset for body_length)'
  const ofArrays = `with places as materialized (
      select number, body_offset, body_length, holds_several, substring($2::bytea from (32 * number - 31)::int for 32) as body_sha256
      from unnest(${arrays.slice(-3).join(', ')}) with ordinality as place (body_offset, body_length, holds_several, number)
    ), given as materialized (
      select items.*, body_sha256,
        -- The bytes of several events stand once in webhook_bodies; cut out for each, they would fill the memory.
        case when not holds_several then ${body} end as body
      from unnest(${arrays.slice(0, -3).join(', ')}) with ordinality as items (${listed(columns)}, place, item)
      join places on number = place order by item
    ), ${inserted('given')}, shared_bodies as (
      insert into webhook_bodies (sha256, body)
      select distinct on (body_sha256) body_sha256, ${body} from places
      where holds_several and body_sha256 in (select body_sha256 from inserted)
      order by body_sha256
      on conflict (sha256) do update set body = excluded.body where webhook_bodies.body is null
    ), ${jobs}`
  return { rows: SIZES.map((size) => ({ size, plain: plain(size), withJobs: withJobs(size) })), arrays: ofArrays }
}

/** Inserts what is new of the items, whose (source, event ID) are distinct; answers which were. */
export async function insertEvents(pool: pg.Pool, statements: InsertStatements, items: readonly Item[]): Promise<Set<string>> {
  // In an order that doesn't depend on the batch, so that two with the same events don't deadlock.
  const sorted = items.toSorted((a, b) => compare(a.delivery.source, b.delivery.source) || compare(a.event.id, b.event.id))
  const isOfOne = items.every(({ delivery }) => delivery.events.length === 1)
  const insert = isOfOne ? statements.rows.find(({ size }) => size >= items.length) : undefined
  if (insert) {
    const rows = await runPrepared(pool, asRows(insert, sorted))
    return new Set(rows.map(([source = '', id = '']) => eventKey(source, id)))
  }
  return queryBriefly<{ source: string; event_id: string }, Set<string>>(
    pool,
    asArrays(statements, sorted),
    (rows) => new Set(rows.map((row) => eventKey(row.source, row.event_id))),
  )
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)

function asRows({ size, plain, withJobs }: SizedInsert, items: readonly Item[]) {
  const hasJobs = items.some(({ event }) => event.status === 'pending')
  const columns = hasJobs ? [...facts, ...bytes, ...forJobs] : [...facts, ...bytes]
  const jobs = jobNumbers(items)
  const values = new Array<Parameter>(size * columns.length).fill(null)
  let at = 0
  for (const [index, item] of items.entries())
    for (const { of } of columns) {
      values[at] = of(item, jobs[index] ?? null)
      at += 1
    }
  return hasJobs
    ? { name: `insert-events-and-jobs-${size}`, text: withJobs, values }
    : { name: `insert-events-${size}`, text: plain, values }
}

function asArrays({ arrays }: InsertStatements, items: readonly Item[]) {
  const deliveries = [...new Set(items.map((item) => item.delivery))]
  const numbers = new Map(deliveries.map((delivery, index) => [delivery, index + 1]))
  const offsets: number[] = []
  let length = 1
  for (const { body } of deliveries) {
    offsets.push(length)
    length += body.length
  }
  const jobs = jobNumbers(items)
  return {
    name: 'insert-events-of-many',
    text: arrays,
    values: [
      deliveries.length === 1 ? deliveries[0]?.body : Buffer.concat(deliveries.map(({ body }) => body)),
      Buffer.concat(deliveries.map(({ sha256 }) => sha256)),
      ...[...facts, ...forJobs].map(({ of }) => items.map((item, index) => asElement(of(item, jobs[index] ?? null)))),
      items.map(({ delivery }) => numbers.get(delivery)),
      offsets,
      deliveries.map(({ body }) => body.length),
      deliveries.map(({ events }) => events.length > 1),
    ],
  }
}

/** In an array pg writes a time in the zone of this process, of which it knows whole minutes only. */
const asElement = (value: Parameter) => (value instanceof Date ? value.toISOString() : value)

/** Which events share a job. Those that turn out to be here already leave it to the others. */
function jobNumbers(items: readonly Item[]): (number | null)[] {
  const counts = new Map<string, number>()
  return items.map(({ delivery: { source }, event }) => {
    if (event.status !== 'pending') return null
    const count = counts.get(source) ?? 0
    counts.set(source, count + 1)
    return Math.floor(count / MOST_EVENTS_IN_JOB)
  })
}

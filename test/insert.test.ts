import { createHash } from 'node:crypto'
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { insertEvents, insertStatements } from '../src/events/insert.ts'
import type { Item, NewEvent } from '../src/events/store.ts'
import { openJobs } from '../src/follow-ups/queue.ts'
import { testDatabase } from './support/database.ts'
import { emptyTables } from './support/posting.ts'

const database = await testDatabase()
const jobs = await openJobs(database.url)
const statements = insertStatements(jobs.eventJobsInsert, jobs.wake)
beforeEach(() => emptyTables(database))

const statuses = ['pending', 'ignored', 'pending', 'quarantined', 'pending'] as const

/** An item with a value of its own in each column, some of them null. */
function itemOf(number: number, more: Partial<NewEvent> = {}, siblings = 0): Item {
  const body = Buffer.from(`{"id":"é${number}","text":"\u{1f600} \\\\ \\" ' {}"}`)
  const event: NewEvent = {
    id: `evt_${number}_é"\\{},'`,
    idBasis: number % 2 ? 'provider' : 'derived',
    idIsSigned: true,
    type: number % 7 ? `type.${number}` : null,
    livemode: [true, false, null][number % 3] ?? null,
    occurredAt: [new Date('1970-01-01T00:00:00.001Z'), new Date('9999-12-31T23:59:59.999Z'), null][number % 3] ?? null,
    objectRef: number % 4 ? `in_${number}` : null,
    replayKey: number % 5 ? null : `once ${number}`,
    needsPerson: undefined,
    status: statuses[number % statuses.length] ?? 'ignored',
    error: number % 5 === 3 ? 'null, {NULL} "quoted"' : null,
    ...more,
  }
  return {
    delivery: {
      source: number % 3 ? 'stripe' : 'other',
      body,
      sha256: createHash('sha256').update(body).digest(),
      headers: { 'user-agent': `agent "${number}" \\ é` },
      secretIndex: number % 6 ? number % 6 : null,
      secretFingerprint: number % 6 ? `print${number}` : null,
      events: Array<NewEvent>(siblings + 1).fill(event),
      requestId: number % 8 ? `request-${number}` : undefined,
    },
    event,
  }
}

const many = (count: number, more?: Partial<NewEvent>) => Array.from({ length: count }, (_, index) => itemOf(index + 1, more))
const nameOf = ({ delivery, event }: Item) => `${delivery.source} ${event.id}`
const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1)

async function storedRows(): Promise<unknown[]> {
  const { rows } = await database.pool.query(
    `select source || ' ' || event_id as name, id_basis, id_signed, type, livemode, occurred_at, status, error, headers, secret_index,
       secret_fingerprint, object_ref, replay_key, body_sha256, body from webhook_events`,
  )
  return rows.sort(byName)
}

const rowOf = ({ delivery, event }: Item) => ({
  name: nameOf({ delivery, event }),
  id_basis: event.idBasis,
  id_signed: event.idIsSigned,
  type: event.type,
  livemode: event.livemode,
  occurred_at: event.occurredAt,
  status: event.status,
  error: event.error,
  headers: delivery.headers,
  secret_index: delivery.secretIndex,
  secret_fingerprint: delivery.secretFingerprint,
  object_ref: event.objectRef,
  replay_key: event.replayKey,
  body_sha256: delivery.sha256,
  body: delivery.body,
})

/** The events of each job, by source and ID, with their requests. */
async function jobsMade(): Promise<string[][]> {
  const { rows } = await database.pool.query<{ events: string[] }>(
    `select array_agg(source || ' ' || event_id || ' ' || coalesce(part ->> 1, 'none') || ' ' || (group_id = source)) as events
     from pgboss.job, jsonb_array_elements(data -> 'events') as part, webhook_events as stored
     where name = 'process-event' and stored.id = (part ->> 0)::bigint group by job.id`,
  )
  return rows.map(({ events }) => events)
}

const asInJob = (item: Item) => `${nameOf(item)} ${item.delivery.requestId ?? 'none'} true`
const wanted = (items: readonly Item[]) => items.filter(({ event }) => event.status === 'pending').map(asInJob)

describe.each([1, 2, 3, 4, 5, 8, 9, 31, 32, 33, 96, 127, 128, 129, 300])('a batch of %i events', (count) => {
  test('C-44 has each of their values in its place, and nothing else', async () => {
    const items = many(count)

    const inserted = await insertEvents(database.pool, statements, items)

    expect([...inserted].sort()).toEqual(items.map(nameOf).sort())
    expect(await storedRows()).toEqual(items.map(rowOf).sort(byName))
  })

  test('without a job is stored all the same', async () => {
    const items = many(count, { status: 'ignored' })

    await insertEvents(database.pool, statements, items)

    expect(await storedRows()).toEqual(items.map(rowOf).sort(byName))
    expect(await jobsMade()).toEqual([])
  })

  test('I2 each event that is wanted has a job that names it, and one only, with at most seven others of its source', async () => {
    const items = many(count)

    await insertEvents(database.pool, statements, items)

    const made = await jobsMade()
    expect(made.flat().sort()).toEqual(wanted(items).sort())
    expect(Math.max(0, ...made.map((events) => events.length))).toBeLessThanOrEqual(8)
  })

  test('of which every other is here already inserts the rest, with jobs for them alone', async () => {
    const items = many(count)
    const [held, fresh] = [items.filter((_, index) => index % 2 === 0), items.filter((_, index) => index % 2 === 1)]
    await insertEvents(database.pool, statements, held)
    await database.pool.query('delete from pgboss.job')

    const inserted = await insertEvents(database.pool, statements, items)

    expect([...inserted].sort()).toEqual(fresh.map(nameOf).sort())
    expect((await jobsMade()).flat().sort()).toEqual(wanted(fresh).sort())
    expect(await storedRows()).toHaveLength(count)
  })
})

test('a POST of several events beside others has its bytes once, and jobs like theirs', async () => {
  const several = itemOf(1, {}, 1)
  const items = [several, { ...several, event: { ...several.event, id: 'second' } }, ...many(20).slice(1)]

  await insertEvents(database.pool, statements, items)

  const { rows } = await database.pool.query('select body from webhook_bodies')
  expect(rows).toEqual([{ body: several.delivery.body }])
  expect(await storedRows()).toEqual(
    items.map((item) => ({ ...rowOf(item), ...(item.delivery === several.delivery && { body: null }) })).sort(byName),
  )
  expect((await jobsMade()).flat().sort()).toEqual(wanted(items).sort())
})

test('a batch as arrays has its times whatever the zone of the process', async () => {
  // Until 1972 it was 44 minutes and 30 seconds behind.
  vi.stubEnv('TZ', 'Africa/Monrovia')
  onTestFinished(() => void vi.unstubAllEnvs())
  const items = many(129)

  await insertEvents(database.pool, statements, items)

  expect(await storedRows()).toEqual(items.map(rowOf).sort(byName))
})

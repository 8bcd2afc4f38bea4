import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { openPool } from '../src/db.ts'
import { testDatabase } from './support/database.ts'
import {
  countRows,
  emptyTables,
  holdInserts,
  ingest,
  onInsert,
  refuse,
  sha256Hex,
  signed,
  storedEvents,
} from './support/posting.ts'

const database = await testDatabase()
const service = await ingest(database)
const { post } = service
const nothing = { events: 0, bodies: 0, conflicts: 0, jobs: 0, sends: 0 }
beforeEach(async () => {
  await emptyTables(database)
  service.logged.length = 0
})

const event = (id: string, more: object = {}) => ({ id, resource_type: 'payments', action: 'paid', ...more })
const bodyOf = (...events: readonly unknown[]) => JSON.stringify({ events })
const postBody = (body: string, via = post) => via('/webhooks/gocardless', body, signed.gocardless(body))
const E1 = event('EV1')
const E2 = event('EV2')
const E3 = event('EV3')

describe('a POST of several events', () => {
  test('is stored as one body and a row per event', async () => {
    const body = bodyOf(E1, E2, E3)

    const answer = await postBody(body)

    expect(answer.json).toEqual({
      status: 'accepted',
      events: ['EV1', 'EV2', 'EV3'].map((id) => ({ id, type: 'payments.paid', status: 'accepted' })),
    })
    expect((await storedEvents(database)).map((row) => [row.event_id, row.body, row.body_sha256.toString('hex')])).toEqual([
      ['EV1', null, sha256Hex(body)],
      ['EV2', null, sha256Hex(body)],
      ['EV3', null, sha256Hex(body)],
    ])
    const { rows } = await database.pool.query(
      `select encode(sha256, 'hex') as sha256, convert_from(body, 'UTF8') as body from webhook_bodies`,
    )
    expect(rows).toEqual([{ sha256: sha256Hex(body), body }])
  })

  test('redelivered in other groups is duplicates, and neither conflicts nor variants', async () => {
    await postBody(bodyOf(E1, E2, E3))
    const regrouped = [bodyOf(E3, E1), bodyOf(E2), bodyOf(E2, event('EV4'))]

    const answers = []
    for (const body of regrouped) answers.push(await postBody(body))

    expect(answers.map((answer) => answer.json.events?.map(({ id, status }) => `${id} ${status}`))).toEqual([
      ['EV3 duplicate', 'EV1 duplicate'],
      ['EV2 duplicate'],
      ['EV2 duplicate', 'EV4 accepted'],
    ])
    expect((await storedEvents(database)).map((row) => [row.event_id, row.redeliveries])).toEqual([
      ['EV1', 1],
      ['EV2', 2],
      ['EV3', 1],
      ['EV4', 0],
    ])
    expect(await countRows(database)).toEqual({ ...nothing, events: 4, bodies: 2 })
  })

  test('is in conflict for the one event that differs', async () => {
    await postBody(bodyOf(E1, E2))
    const other = bodyOf(E1, event('EV2', { action: 'failed' }))

    const answer = await postBody(other)

    expect(answer.json.status).toBe('duplicate')
    const { rows } = await database.pool.query(
      `select event_id, convert_from(webhook_conflicts.body, 'UTF8') as body from webhook_conflicts join webhook_events events on events.id = event`,
    )
    expect(rows).toEqual([{ event_id: 'EV2', body: other }])
  })

  test('with an element that is no event keeps the good ones and one quarantined row for people', async () => {
    const body = bodyOf(E1, { action: 'paid' }, 'junk', E2)

    const answers = [await postBody(body), await postBody(body)]

    const kept = `sha256:${sha256Hex(body)}`
    expect(answers.map((answer) => [answer.json.status, answer.json.events?.map(({ id, status }) => `${id} ${status}`)])).toEqual(
      [
        ['accepted', ['EV1 accepted', 'EV2 accepted', `${kept} quarantined`]],
        ['duplicate', ['EV1 duplicate', 'EV2 duplicate', `${kept} duplicate`]],
      ],
    )
    const rows = await storedEvents(database)
    expect(new Map(rows.map((row) => [row.event_id, `${row.status} ${row.error}`]))).toEqual(
      new Map([
        ['EV1', 'ignored null'],
        ['EV2', 'ignored null'],
        [kept, 'quarantined no_id'],
      ]),
    )
    expect((await countRows(database))?.bodies).toBe(1)
  })

  test('that names an event twice has it once', async () => {
    const answer = await postBody(bodyOf(E1, E1, E1))

    expect(answer.json.events).toEqual([{ id: 'EV1', type: 'payments.paid', status: 'accepted' }])
    expect((await storedEvents(database)).map((row) => row.redeliveries)).toEqual([0])
  })

  test.each(['{"events":[]}', '{"events":{}}', '{}', '[]'])('without any event is quarantined: %s', async (body) => {
    const answers = [await postBody(body), await postBody(body)]

    expect(answers.map((answer) => answer.json.status)).toEqual(['quarantined', 'duplicate'])
    expect((await storedEvents(database)).map((row) => row.body?.toString())).toEqual([body])
  })

  test('C-44 is stored as a whole or not at all', async () => {
    const body = bodyOf(E1, E2, E3, event('EV4'), event('EV5'))
    const refusing = await onInsert(database, refuse(`new.event_id = 'EV4'`))

    const refused = await postBody(body)
    const stored = await countRows(database)
    await refusing.remove()
    const again = await postBody(body)

    expect([refused.status, refused.json.code]).toEqual([503, 'storage_unavailable'])
    expect(stored).toEqual(nothing)
    expect([again.status, again.json.status]).toEqual([200, 'accepted'])
    expect(await countRows(database)).toEqual({ ...nothing, events: 5, bodies: 1 })
  })

  test('I18 of five thousand events does not cut out its bytes five thousand times', async () => {
    const body = bodyOf(...Array.from({ length: 5_000 }, (_, index) => event(`EV${index}`)))
    const temporary = async () => {
      const { rows } = await database.pool.query<{ bytes: string }>(
        'select temp_bytes as bytes from pg_stat_database where datname = current_database()',
      )
      return Number(rows[0]?.bytes)
    }
    const before = await temporary()

    const answer = await postBody(body)

    expect([answer.status, answer.json.events?.length]).toEqual([200, 5_000])
    expect(await countRows(database)).toEqual({ ...nothing, events: 5_000, bodies: 1 })
    // 1.4 GB, each body for itself.
    expect((await temporary()) - before).toBeLessThan(50_000_000)
  })

  test('of a thousand events is one transaction', async () => {
    const body = bodyOf(...Array.from({ length: 1_000 }, (_, index) => event(`EV${index}`)))

    const answers = [await postBody(body), await postBody(body)]

    expect(answers.map((answer) => [answer.json.status, answer.json.events?.length])).toEqual([
      ['accepted', 1_000],
      ['duplicate', 1_000],
    ])
    const { rows } = await database.pool.query('select count(distinct xmin::text)::int as transactions from webhook_bodies')
    expect(rows).toEqual([{ transactions: 1 }])
    expect(await countRows(database)).toEqual({ ...nothing, events: 1_000, bodies: 1 })
  })
})

describe('two instances with the same events in opposite orders', () => {
  const otherPool = openPool({ url: database.url, name: 'other', max: 10 })
  afterAll(() => otherPool.end())
  const startOther = () => ingest({ url: database.url, pool: otherPool })

  test('do not deadlock over POSTs of several events', async () => {
    const other = await startOther()
    const events = Array.from({ length: 20 }, (_, index) => event(`EV${index + 10}`))
    // So slow that the two are sure to meet.
    await onInsert(database, 'perform pg_sleep(0.01);')

    const answers = await Promise.all([postBody(bodyOf(...events)), postBody(bodyOf(...events.toReversed()), other.post)])

    expect(answers.map((answer) => answer.json.status).sort()).toEqual(['accepted', 'duplicate'])
    expect((await storedEvents(database)).map((row) => row.redeliveries)).toEqual(Array(20).fill(1))
  })

  test('count every redelivery of many at once', async () => {
    const other = await startOther()
    const ids = Array.from({ length: 27 }, (_, index) => `EV${index}`)
    const overlapping = Array.from({ length: 20 }, (_, index) => {
      const some = ids.slice(index, index + 8).map((id) => event(id))
      return bodyOf(...(index % 2 === 0 ? some : some.reverse()))
    })

    const answers = await Promise.all(
      [...overlapping, ...overlapping.toReversed()].map((body, index) => postBody(body, index % 2 === 0 ? post : other.post)),
    )

    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([200]))
    const accepted = answers.flatMap((answer) => answer.json.events ?? []).filter(({ status }) => status === 'accepted')
    expect(accepted).toHaveLength(27)
    const rows = await storedEvents(database)
    expect(new Set(rows.map((row) => row.event_id))).toEqual(new Set(ids))
    expect(rows.reduce((sum, row) => sum + row.redeliveries, 0)).toBe(40 * 8 - 27)
    expect((await countRows(database))?.conflicts).toBe(0)
    expect([...service.logged, ...other.logged].filter((line) => line.result === 'not_recorded')).toEqual([])
  })

  test('take every one, though captured bodies under new IDs make them deadlock', async () => {
    const other = await startOther()
    const arrivedBefore = service.arrived()
    const postGithub = (via: typeof post, id: string, number: number) => {
      const body = `{"number":${number}}`
      return via('/webhooks/github', body, signed.github(body, id))
    }
    await onInsert(database, `if new.source = 'github' then perform pg_sleep(0.1); end if;`)
    const held = await holdInserts(database.url)
    const gates = [postBody(bodyOf(E1)), postBody(bodyOf(E2), other.post)]
    await expect.poll(held.waiting, { interval: 5 }).toBe(2)

    const answers = [
      postGithub(post, 'a1', 1),
      postGithub(post, 'a2', 2),
      postGithub(other.post, 'b1', 2),
      postGithub(other.post, 'b2', 1),
    ]
    await expect.poll(service.arrived, { interval: 5 }).toBe(arrivedBefore + 3)
    await expect.poll(other.arrived, { interval: 5 }).toBe(3)
    await held.release()
    await Promise.all(gates)

    expect((await Promise.all(answers)).map((answer) => answer.status)).toEqual([200, 200, 200, 200])
    expect((await storedEvents(database)).filter((row) => row.source === 'github').map((row) => row.redeliveries)).toEqual([1, 1])
  })
})

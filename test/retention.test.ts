import { beforeEach, describe, expect, test } from 'vitest'
import { emptyOldBodies } from '../src/events/sweeps.ts'
import { testDatabase } from './support/database.ts'
import { insertAttempt, insertReport, insertSend } from './support/ops-rows.ts'
import { countRows, emptyTables, ingest, sha256Hex, signed, sources, storedEvents } from './support/posting.ts'

const database = await testDatabase()
const { pool } = database
const service = await ingest(database, {
  sources,
  followUps: [{ source: 'generic', type: 'wanted', email: () => null }],
})
const { post } = service
beforeEach(() => emptyTables(database))

const postGeneric = (body: string) => post('/webhooks/generic', body, signed.generic(body))
const postBatch = (...ids: string[]) => {
  const body = JSON.stringify({ events: ids.map((id) => ({ id, resource_type: 'payments', action: 'paid' })) })
  return post('/webhooks/gocardless', body, signed.gocardless(body))
}
const postInboxili = (body: string) => post('/webhooks/inboxili', body, signed.inboxili(body))
const age = async (condition: string, days = 91) => {
  await pool.query(`update webhook_events set received_at = now() - $1 * interval '1 day' where ${condition}`, [days])
  await pool.query(`update webhook_bodies set received_at = now() - $1 * interval '1 day'`, [days])
}
const rowId = async (eventId: string) => (await storedEvents(database)).find((event) => event.event_id === eventId)?.id ?? ''
const bodies = async () =>
  Object.fromEntries(
    (
      await pool.query(
        `select event_id, coalesce(events.body, bodies.body) is not null as has_body, headers <> '{}' as has_headers,
           body_emptied_at is not null as is_emptied
         from webhook_events events left join webhook_bodies bodies on sha256 = body_sha256 order by events.id`,
      )
    ).rows.map((row) => [row.event_id, [row.has_body, row.has_headers, row.is_emptied]]),
  )
const kept = [true, true, false]
const emptied = [false, false, true]

test('empties bodies and headers of closed events past their days, and keeps the rows', async () => {
  for (const id of ['processed', 'ignored', 'young']) await postGeneric(`{"id":"${id}"}`)
  await pool.query(`update webhook_events set status = 'processed', processed_at = now() where event_id = 'processed'`)
  await pool.query(`update webhook_events set headers = '{"content-type":"application/json"}'`)
  await age(`event_id <> 'young'`)
  await age(`event_id = 'young'`, 89)

  const counts = [await emptyOldBodies(pool, 90), await emptyOldBodies(pool, 90)]

  expect(counts).toEqual([2, 0])
  expect(await bodies()).toEqual({ processed: emptied, ignored: emptied, young: kept })
})

test('leaves alone what is pending, failed, quarantined, in conflict or parked', async () => {
  await postGeneric('{"id":"pending","type":"wanted"}')
  await postGeneric('{"id":"failed","type":"wanted"}')
  await pool.query(`update webhook_events set status = 'failed', error = 'no template' where event_id = 'failed'`)
  await postGeneric('quarantined')
  await postGeneric('{"id":"in conflict","amount":1}')
  await postGeneric('{"id":"in conflict","amount":2}')
  for (const messageId of ['parked', 'matched']) await postInboxili(`{"event":"opened","message_id":"${messageId}"}`)
  await pool.query(`update webhook_events set status = 'processed', processed_at = now() where source = 'inboxili'`)
  await insertSend(pool, 'a', { state: 'sent' })
  await insertReport(pool, await rowId('parked:opened'), { parked: 'no_candidate' })
  await insertReport(pool, await rowId('matched:opened'), { attempt: await insertAttempt(pool, 'a') })
  await pool.query(`update webhook_events set headers = '{"content-type":"application/json"}'`)
  await age('true', 10_000)

  const count = await emptyOldBodies(pool, 90)

  expect(count).toBe(1)
  expect(await bodies()).toEqual({
    pending: kept,
    failed: kept,
    [`sha256:${sha256Hex('quarantined')}`]: kept,
    'in conflict': kept,
    'parked:opened': kept,
    'matched:opened': emptied,
  })
  expect((await countRows(database))?.conflicts).toBe(1)
})

test('empties the body of a POST of several events only with the last of them', async () => {
  await postBatch('EV1', 'EV2')
  await pool.query(`update webhook_events set headers = '{"content-type":"application/json"}'`)
  await age(`event_id = 'EV1'`)

  await emptyOldBodies(pool, 90)
  const afterFirst = await bodies()
  await age(`event_id = 'EV2'`)
  await emptyOldBodies(pool, 90)

  expect(afterFirst).toEqual({ EV1: [true, false, true], EV2: kept })
  expect(await bodies()).toEqual({ EV1: emptied, EV2: emptied })
  expect((await countRows(database))?.bodies).toBe(1)
})

describe('C-38 a redelivery after retention', () => {
  test('is a duplicate, in the same bytes or in others, and no conflict', async () => {
    await postGeneric('{"id":"e1","amount":10.00}')
    await age('true', 120)
    await emptyOldBodies(pool, 90)

    const answers = [await postGeneric('{"id":"e1","amount":10.00}'), await postGeneric('{"id":"e1", "amount":10.00}')]

    expect(answers.map((answer) => [answer.status, answer.json.status])).toEqual([
      [200, 'duplicate'],
      [200, 'duplicate'],
    ])
    expect(await countRows(database)).toEqual({ events: 1, bodies: 0, conflicts: 0, jobs: 0, sends: 0 })
    expect((await storedEvents(database)).map((event) => [event.body, event.redeliveries])).toEqual([[null, 2]])
  })

  test('of one event among several is a duplicate; a new one beside it brings the body back', async () => {
    await postBatch('EV1', 'EV2')
    await age('true', 120)
    await emptyOldBodies(pool, 90)

    const answers = [await postBatch('EV1', 'EV2'), await postBatch('EV2', 'EV1', 'EV3')]

    expect(answers.map((answer) => answer.json.events?.map(({ id, status }) => `${id} ${status}`))).toEqual([
      ['EV1 duplicate', 'EV2 duplicate'],
      ['EV2 duplicate', 'EV1 duplicate', 'EV3 accepted'],
    ])
    expect((await countRows(database))?.conflicts).toBe(0)
    expect((await bodies()).EV3?.[0]).toBe(true)
  })

  test('of a delivery event with another body is a further event: a late hard bounce is never lost', async () => {
    await postInboxili('{"event":"bounced","message_id":"m1","type":"soft"}')
    await pool.query(`update webhook_events set status = 'processed', processed_at = now()`)
    await age('true', 120)
    await emptyOldBodies(pool, 90)
    const hard = '{"event":"bounced","message_id":"m1","type":"hard"}'

    const answers = [await postInboxili(hard), await postInboxili('{"event":"bounced","message_id":"m1","type":"soft"}')]

    expect(answers.map((answer) => answer.json.events)).toEqual([
      [{ id: `m1:bounced:${sha256Hex(hard)}`, type: 'bounced', status: 'accepted' }],
      [{ id: 'm1:bounced', type: 'bounced', status: 'duplicate' }],
    ])
  })
})

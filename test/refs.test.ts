import request from 'supertest'
import { beforeEach, describe, expect, test } from 'vitest'
import { key, type Rule, readConfig } from '../src/config.ts'
import { emptyOldBodies } from '../src/events/sweeps.ts'
import { refsOf } from '../src/providers/refs.ts'
import { patientDatabase } from './support/sends.ts'
import { hexHmac, INBOXILI_SECRET, stripeSignature, testService } from './support/service.ts'

describe('what a payload names', () => {
  test('is IDs, numbers and addresses in lower case, the object first, then what stands outermost', () => {
    const payload = {
      id: 'evt_1Q',
      type: 'invoice.paid',
      data: {
        object: {
          id: 'in_1MtHbELkdIwHu7ixl4OzzPMv',
          number: 'INV-1042',
          customer: 'cus_NeZwdNtLEOXuvB',
          customer_email: 'Ada@Example.com',
          description: 'Two tickets',
          lines: { data: [{ price: 'price_1MowQVLkdIwHu7ix' }] },
        },
      },
    }

    expect(refsOf(payload, 'in_1MtHbELkdIwHu7ixl4OzzPMv', ['evt_1Q'])).toEqual([
      'in_1mthbelkdiwhu7ixl4ozzpmv',
      'inv-1042',
      'cus_nezwdntleoxuvb',
      'ada@example.com',
      'price_1mowqvlkdiwhu7ix',
    ])
  })

  test.each([
    ['integers under a name that says so', { order_number: 1042, orderId: 450789469, amount: 1999 }, ['1042', '450789469']],
    ['digits beyond 2^53, as they are read', { id: '9007199254740993' }, ['9007199254740993']],
    ['members of a list of IDs', { invoice_ids: ['A-100', 'A-101'] }, ['a-100', 'a-101']],
    ['nothing that opens a door', { client_secret: 'pi_3Mtwwe_secret_1', api_key: 'live_abcdef12', token: 'tok_1MzrqWLk' }, []],
    ['no text, link or short word', { reference: 'for the two of us', number: 'ab', ref: 'https://example.com/in_1' }, []],
    ['nothing in what is no object', 'cus_NeZwdNtLEOXuvB and more', []],
    ['each once', { id: 'A-100', order: { id: 'a-100' } }, ['a-100']],
  ])('holds %s', (_what, payload, expected) => {
    expect(refsOf(payload, null)).toEqual(expected)
  })

  test('is 16 at most, of 200 characters at most, however large the payload', () => {
    const many = { id: 'first', lines: Array.from({ length: 100_000 }, (_, index) => ({ id: `line_${index}` })) }
    const long = { id: 'x'.repeat(201), reference: 'y'.repeat(200) }

    const started = performance.now()
    expect(refsOf(many, null)).toHaveLength(16)
    expect(performance.now() - started).toBeLessThan(1_000)
    expect(refsOf(long, null)).toEqual(['y'.repeat(200)])
    let deep: unknown = 'in_deep0001'
    for (let level = 0; level < 5_000; level += 1) deep = { inner: deep }
    expect(refsOf(deep, null)).toEqual([])
  })
})

const database = await patientDatabase()
const { pool } = database
const sources = {
  stripe: { provider: 'stripe', secrets: ['whsec_test_A'] },
  inboxili: { provider: 'inboxili', secrets: [INBOXILI_SECRET] },
}
const service = await testService(database, { sources })

/** Posts a signed event; answers its row's id. */
async function post(eventId: string, object: object): Promise<string> {
  const body = JSON.stringify({ id: eventId, type: 'invoice.paid', livemode: true, data: { object } })
  const signature = stripeSignature(body, 'whsec_test_A', Math.floor(service.clock.now / 1000))
  await request(service.app).post('/webhooks/stripe').set('stripe-signature', signature).send(body).expect(200)
  return rowOf(eventId)
}
const rowOf = async (eventId: string) =>
  (await pool.query('select id from webhook_events where event_id = $1', [eventId])).rows[0]?.id
const refs = async (event: string) =>
  (await pool.query('select ref from event_refs where event_id = $1 order by ref', [event])).rows.map(({ ref }) => ref)
const setRule = (email: Rule['email']) => {
  service.config.current = readConfig({
    sources,
    followUps: [{ name: 'receipt', source: 'stripe', type: 'invoice.paid', email }],
  })
}

describe('references of an event', () => {
  beforeEach(() => {
    service.clock.now = Date.now()
    setRule(() => null)
  })

  test('are written by the worker with its result, not when it arrives, and once however often its job runs', async () => {
    const event = await post('evt_refs_1', { id: 'in_refs1', number: 'INV-1', customer_email: 'Ada@example.com' })
    expect(await refs(event)).toEqual([])

    await Promise.all([1, 2, 3].map(() => service.process(event)))
    await service.process(event)

    expect(await refs(event)).toEqual(['ada@example.com', 'in_refs1', 'inv-1'])
  })

  test('are there too where the rule fails, so that people find why there is no email', async () => {
    setRule(() => ({ key: key('invoice', undefined as unknown as string), to: 'a@example.com', from_email: 'b@example.com' }))
    const event = await post('evt_refs_2', { id: 'in_refs2' })

    await service.process(event)

    expect(await refs(event)).toEqual(['in_refs2'])
    expect((await pool.query('select status from webhook_events where id = $1', [event])).rows).toEqual([{ status: 'failed' }])
  })

  test('are undone with the result when the commit fails, and written when the job runs again', async () => {
    setRule(() => ({ key: key('invoice', 'refs3', 'paid'), to: 'a@example.com', from_email: 'b@example.com', text_body: 'Paid' }))
    const event = await post('evt_refs_3', { id: 'in_refs3' })
    await pool.query(
      `create function fail_at_commit() returns trigger language plpgsql as $$ begin raise exception 'a crash'; end $$`,
    )
    await pool.query(
      `create constraint trigger fails after insert on follow_ups deferrable initially deferred for each row execute function fail_at_commit()`,
    )

    await expect(service.process(event)).rejects.toThrow('not processed yet')
    expect(await refs(event)).toEqual([])
    await pool.query('drop trigger fails on follow_ups')
    await pool.query('drop function fail_at_commit')
    await service.process(event)

    expect(await refs(event)).toEqual(['in_refs3'])
  })

  test('of a delivery event are its message and its recipient', async () => {
    const body = JSON.stringify({ event: 'delivered', message_id: 'm_refs4', to: 'Di@example.com' })
    await request(service.app)
      .post('/webhooks/inboxili')
      .set('x-inboxili-signature', hexHmac(body, INBOXILI_SECRET))
      .send(body)
      .expect(200)
    const event = await rowOf('m_refs4:delivered')

    await service.process(event)

    expect(await refs(event)).toEqual(['di@example.com', 'm_refs4'])
  })

  test('that are addresses go with the body when retention empties it; the rest stays', async () => {
    const event = await post('evt_refs_5', { id: 'in_refs5', receipt_email: 'eve@example.com' })
    const young = await post('evt_refs_6', { id: 'in_refs6', receipt_email: 'eve@example.com' })
    for (const one of [event, young]) await service.process(one)
    await pool.query(`update webhook_events set received_at = now() - interval '91 days' where id = $1`, [event])

    await emptyOldBodies(pool, 90)

    expect(await refs(event)).toEqual(['in_refs5'])
    expect(await refs(young)).toEqual(['eve@example.com', 'in_refs6'])
  })
})

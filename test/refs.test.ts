import request from 'supertest'
import { beforeEach, describe, expect, test } from 'vitest'
import { key, type Rule, readConfig, type UserConfig } from '../src/config.ts'
import { emptyOldBodies } from '../src/events/sweeps.ts'
import { explainNoHit } from '../src/ops/search.ts'
import { refsOf } from '../src/providers/refs.ts'
import { withProvider } from './support/made-up.ts'
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

  test('is looked for among some thousands of values, however many there are', () => {
    let looked = 0
    const value = () => {
      looked += 1
      return 'of no kind'
    }
    const levels = Array.from({ length: 200_000 }, () => Object.defineProperty({}, 'note', { enumerable: true, get: value }))

    expect(refsOf({ lines: levels }, null)).toEqual([])
    expect(looked).toBeGreaterThan(0)
    expect(looked).toBeLessThanOrEqual(5_000)
  })

  test('is 16 at most, of 200 characters at most, however large the payload', () => {
    const many = { id: 'first', lines: Array.from({ length: 100_000 }, (_, index) => ({ id: `line_${index}` })) }
    const long = { id: 'x'.repeat(201), reference: 'y'.repeat(200) }

    expect(refsOf(many, null)).toHaveLength(16)
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

  test('are those of an event whose result could not be committed too, and once when the job runs again', async () => {
    setRule(() => ({ key: key('invoice', 'refs3', 'paid'), to: 'a@example.com', from_email: 'b@example.com', text_body: 'Paid' }))
    const event = await post('evt_refs_3', { id: 'in_refs3' })
    await pool.query(
      `create function fail_at_commit() returns trigger language plpgsql as $$ begin raise exception 'a crash'; end $$`,
    )
    await pool.query(
      `create constraint trigger fails after insert on follow_ups deferrable initially deferred for each row execute function fail_at_commit()`,
    )

    await expect(service.process(event)).rejects.toThrow('not processed yet')
    expect(await refs(event)).toEqual(['in_refs3'])
    expect((await pool.query('select status from webhook_events where id = $1', [event])).rows).toEqual([{ status: 'pending' }])
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

  test.each<[string, Partial<UserConfig>, string]>([
    ['whose source is configured no more', { sources: { inboxili: sources.inboxili } }, 'source stripe is not configured'],
    [
      'that could not be confirmed',
      {
        sources: { ...sources, stripe: { ...sources.stripe, confirm: () => Promise.reject(new Error('away')) } },
        followUps: [{ name: 'receipt', source: 'stripe', type: 'invoice.paid', email: () => null }],
      },
      'confirm: Error: away',
    ],
  ])('are there of an event %s, so that a search says where it broke', async (_what, config, error) => {
    const event = await post(`evt_refs_${error}`, { id: 'in_failing', number: `INV-of ${error}`.replaceAll(/\W/g, '-') })
    service.config.current = readConfig({ followUps: [], sources, ...config })

    await service.process(event, true)

    const [ref = ''] = (await refs(event)).filter((one) => one.startsWith('inv-'))
    expect(await explainNoHit(pool, ref.toUpperCase())).toMatchObject({
      broke: 'failed',
      text: expect.stringContaining(error),
      events: [{ id: event }],
    })
  })

  test('are read from its JSON where its provider can not read it', async () => {
    const event = await post('evt_refs_7', { id: 'in_refs7', number: 'INV-7' })
    service.config.current = withProvider(service.config.current, 'stripe', {
      events: () => {
        throw new Error('unreadable')
      },
    })

    await service.process(event, true)

    expect(await refs(event)).toEqual(['in_refs7', 'inv-7'])
    expect((await explainNoHit(pool, 'INV-7')).broke).toBe('failed')
  })

  test('of a body that is no JSON any more are only the object, and the event fails visibly all the same', async () => {
    const event = await post('evt_refs_8', { id: 'in_refs8', number: 'INV-8' })
    await pool.query(`update webhook_events set body = 'INV-8' where id = $1`, [event])
    service.config.current = readConfig({ sources: { inboxili: sources.inboxili }, followUps: [] })

    await service.process(event, true)

    expect(await refs(event)).toEqual(['in_refs8'])
    expect((await pool.query('select status from webhook_events where id = $1', [event])).rows).toEqual([{ status: 'failed' }])
  })

  test('go with the body when retention empties it, but for the object that it is about', async () => {
    const event = await post('evt_refs_5', {
      id: 'In_refs5',
      receipt_email: 'eve@example.com',
      phone_number: 491512345678,
      account_number: 'DE02120300000000202051',
      customer: 'cus_NeZwdNtLEOXuvB',
    })
    const young = await post('evt_refs_6', { id: 'in_refs6', receipt_email: 'eve@example.com' })
    for (const one of [event, young]) await service.process(one)
    await pool.query(`update webhook_events set received_at = now() - interval '91 days' where id = $1`, [event])

    await emptyOldBodies(pool, 90)

    expect(await refs(event)).toEqual(['in_refs5'])
    expect((await pool.query('select object_ref from webhook_events where id = $1', [event])).rows).toEqual([
      { object_ref: 'In_refs5' },
    ])
    expect(await refs(young)).toEqual(['eve@example.com', 'in_refs6'])
  })
})

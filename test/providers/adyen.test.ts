import { createHmac } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { isSameEvent, readEvents } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { isUsableSecret } from '../../src/providers/signature.ts'
import { sampleRequest } from '../../src/sandbox/samples.ts'
import { judge } from '../support/judge.ts'
import { requestOf } from '../support/provider-setups.ts'

const KEY = '000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f'
const C22 = {
  pspReference: 'PSP0000000000001',
  merchantAccountCode: 'ExampleAccount',
  merchantReference: '14-08-2020-09:53:00',
  amount: { value: 1000, currency: 'EUR' },
  eventCode: 'AUTHORISATION',
  success: 'true',
}
const C22_SIGNATURE = 'VYHBVvhAJA6vUwfXrkPXLLlD0Xk7J3RzaicUyhjdd/w='

const mac = (text: string) => createHmac('sha256', Buffer.from(KEY, 'hex')).update(text).digest('base64')
const signed = (item: object, signature: unknown) => ({
  NotificationRequestItem: { ...item, additionalData: { hmacSignature: signature } },
})
const post = (notificationItems: unknown, options?: unknown, headers = {}) =>
  judge('adyen', { body: JSON.stringify({ live: 'true', notificationItems }), secrets: [KEY], options, headers })
const report = (merchantAccountCode: string) => {
  const item = { ...C22, pspReference: 'settlement_report_batch_1.csv', merchantAccountCode, eventCode: 'REPORT_AVAILABLE' }
  const text = `${item.pspReference}::${merchantAccountCode}:14-08-2020-09:53:00:1000:EUR:REPORT_AVAILABLE:true`
  return signed(item, mac(text))
}

test('a border that was moved makes no other event of the same signature', () => {
  const genuine = { ...C22, pspReference: 'P', merchantAccountCode: 'M', merchantReference: 'ORD:7' }
  const moved = { ...C22, pspReference: 'P:', originalReference: 'M', merchantAccountCode: 'ORD', merchantReference: '7' }
  const signature = mac('P::M:ORD:7:1000:EUR:AUTHORISATION:true')

  expect(post([signed(genuine, signature)]).events.map(({ id }) => id)).toEqual(['P:AUTHORISATION:true'])
  expect(post([signed(moved, signature)]).events).toEqual([])
})

test('a NUL in a signed field is signed as it is, and mended only in what is read', () => {
  const item = { ...C22, merchantReference: 'a\0b' }
  const { verdict } = post([signed(item, mac('PSP0000000000001::ExampleAccount:a\0b:1000:EUR:AUTHORISATION:true'))])

  expect(verdict.ok).toBe(true)
  expect(post([signed(item, mac('PSP0000000000001::ExampleAccount:a\ufffdb:1000:EUR:AUTHORISATION:true'))]).verdict.ok).toBe(
    false,
  )
})

describe('C-22 the eight fields', () => {
  test('C-22 are joined by plain colons, keep their place when empty, and are keyed with the bytes of the hex', () => {
    const { verdict, events } = post([signed(C22, C22_SIGNATURE)])

    expect(verdict).toEqual({ ok: true, secretIndex: 0 })
    expect(events).toMatchObject([
      {
        id: 'PSP0000000000001:AUTHORISATION:true',
        idBasis: 'derived',
        type: 'AUTHORISATION',
        livemode: true,
        objectRef: 'PSP0000000000001',
      },
    ])
    expect(post([signed({ ...C22, originalReference: null }, C22_SIGNATURE)]).verdict.ok).toBe(true)
  })

  test.each([
    ['escaped colons', 'fmiQHKvZP+6YIT8m1FYI8wA6AVIoMDnJZXlaCPhit9Q='],
    ['the hex text as the key', 'i25F7mveB4JoWfckY5rsx6kGL2MZhMT1v7TTqKeXZrQ='],
  ])('C-22 refuses the signature made with %s', (_name, signature) => {
    expect(post([signed(C22, signature)]).verdict).toEqual({ ok: false, reason: 'signature_mismatch' })
  })

  test.each([
    ['pspReference', 'PSP0000000000002'],
    ['originalReference', 'PSP0000000000000'],
    ['merchantAccountCode', 'OtherAccount'],
    ['merchantReference', '14-08-2020-09:53:01'],
    ['amount', { value: 1001, currency: 'EUR' }],
    ['amount', { value: 1000, currency: 'USD' }],
    ['amount', undefined],
    ['eventCode', 'REFUND'],
    ['success', 'false'],
  ])('C-22 refuses another %s', (name, value) => {
    expect(post([signed({ ...C22, [name]: value }, C22_SIGNATURE)]).verdict).toEqual({ ok: false, reason: 'signature_mismatch' })
  })

  test('numbers and booleans are signed as their text; lists and objects can’t be', () => {
    expect(
      post([signed({ ...C22, success: true, amount: { value: '1000', currency: 'EUR' } }, C22_SIGNATURE)]).events,
    ).toMatchObject([{ id: 'PSP0000000000001:AUTHORISATION:true' }])
    expect(post([signed({ ...C22, success: ['true'] }, C22_SIGNATURE)]).verdict).toEqual({
      ok: false,
      reason: 'malformed_signature',
    })
  })
})

describe('C-23 an item without a signature', () => {
  test.each([
    ['additionalData missing', [{ NotificationRequestItem: C22 }]],
    ['additionalData empty', [{ NotificationRequestItem: { ...C22, additionalData: {} } }]],
    ['an empty signature', [signed(C22, '')]],
    ['no wrapper', [{ ...C22, additionalData: { hmacSignature: C22_SIGNATURE } }]],
    ['no item', []],
    ['items that are a text', 'NotificationRequestItem'],
    ['a signature that is no text', [signed(C22, { a: 1 })]],
    ['null for an item', [null]],
  ])('C-23 is refused: %s', (_name, items) => {
    expect(post(items).verdict).toEqual({ ok: false, reason: 'missing_signature' })
  })

  test.each([
    '',
    'null',
    '[]',
    '{',
    '"x"',
    '{"notificationItems":{"length":1}}',
    '['.repeat(100_000),
    Buffer.from([0xff, 0xfe, 0]),
  ])('C-23 is refused, whatever the body is (%#)', (body) => {
    expect(judge('adyen', { body, secrets: [KEY] }).verdict).toEqual({ ok: false, reason: 'missing_signature' })
  })

  test('takes all others of its POST with it', () => {
    expect(post([signed(C22, C22_SIGNATURE), { NotificationRequestItem: C22 }]).verdict.ok).toBe(false)
    expect(post([signed(C22, C22_SIGNATURE), signed({ ...C22, eventCode: 'REFUND' }, C22_SIGNATURE)]).verdict).toEqual({
      ok: false,
      reason: 'signature_mismatch',
    })
  })
})

test.each([
  `${C22_SIGNATURE.slice(0, -1)}`,
  C22_SIGNATURE.replaceAll('/', '_'),
  ` ${C22_SIGNATURE}`,
  Buffer.from(C22_SIGNATURE, 'base64').toString('hex'),
  'VYHBVvhAJA6vUwfXrkPXLLlD0Xk7J3RzaicUyhjdd/x=',
])('refuses the signature in another form: %s', (signature) => {
  expect(post([signed(C22, signature)]).verdict.ok).toBe(false)
})

test('C-36 keeps one report of two merchant accounts apart', () => {
  const { verdict, events } = post([report('AccountA'), report('AccountB'), report('AccountA')])

  expect(verdict.ok).toBe(true)
  expect(events.map(({ id }) => id)).toEqual([
    'settlement_report_batch_1.csv:REPORT_AVAILABLE:true:AccountA',
    'settlement_report_batch_1.csv:REPORT_AVAILABLE:true:AccountB',
  ])
})

test('C-35 a duplicate that differs in what is not signed is no conflict; another amount is one', () => {
  const provider = createProvider('adyen')
  const first = post([signed({ ...C22, eventDate: '2026-09-21T16:13:05+02:00', reason: 'a' }, C22_SIGNATURE)]).request
  const again = post([signed({ ...C22, reason: 'b', paymentMethod: 'mc', operations: ['CANCEL'] }, 'other')]).request
  const other = post([signed({ ...C22, amount: { value: 1, currency: 'EUR' } }, C22_SIGNATURE)]).request

  expect(isSameEvent(provider, first, again, 'PSP0000000000001:AUTHORISATION:true')).toBe(true)
  expect(isSameEvent(provider, first, other, 'PSP0000000000001:AUTHORISATION:true')).toBe(false)
})

test('C-32 a test event says so, and a capture belongs to its payment', () => {
  const body = (live: unknown) =>
    JSON.stringify({ live, notificationItems: [signed({ ...C22, originalReference: 'PSP0' }, 'x')] })
  const eventOf = (live: unknown) => readEvents(createProvider('adyen'), { headers: {}, body: Buffer.from(body(live)) }).events[0]

  expect(['false', 'true', undefined, 'maybe'].map((live) => eventOf(live)?.livemode)).toEqual([false, true, null, null])
  expect(eventOf('true')?.objectRef).toBe('PSP0')
})

describe('platform webhooks', () => {
  const options = { scheme: 'platform' }
  const send = (body: string, signature: string | string[] = mac(body)) =>
    judge('adyen', { body, secrets: [KEY], options, headers: { HmacSignature: signature, Protocol: 'HmacSHA256' } })

  test('have an ID put together, or the hash of the body without a sequence number', () => {
    const body = '{"type":"balancePlatform.transfer.updated","environment":"test","data":{"id":"T1"}}'

    expect(send(body).events).toMatchObject([
      {
        id: 'sha256:d46bb1463f3682e82e24705bb233267b27e84d30bd5ad5fd91f79d12f258cc82',
        idBasis: 'body_hash',
        livemode: false,
        objectRef: 'T1',
      },
    ])
    expect(send('{"type":"a.b","environment":"live","data":{"id":"T1","sequenceNumber":9007199254740993}}').events).toMatchObject(
      [{ id: 'a.b:T1:9007199254740993', idBasis: 'derived', livemode: true }],
    )
  })

  test('are refused under the other scheme, twice signed, or signed over other bytes', () => {
    const body = '{"type":"a"}'

    expect(post([signed(C22, C22_SIGNATURE)], options).verdict).toEqual({ ok: false, reason: 'missing_signature' })
    expect(send(body, [mac(body), mac(body)]).verdict).toEqual({ ok: false, reason: 'malformed_signature' })
    expect(send(body, Buffer.from(mac(body), 'base64').toString('hex')).verdict.ok).toBe(false)
    expect(send(body, mac(`${body} `)).verdict).toEqual({ ok: false, reason: 'signature_mismatch' })
    expect(judge('adyen', { body, secrets: [KEY], headers: { HmacSignature: mac(body) } }).verdict.ok).toBe(false)
  })
})

test.each(['standard', 'platform'] as const)('with basicAuth both are needed, the password and the signature: %s', (scheme) => {
  const options = { scheme, basicAuth: 'ada:pass:word' }
  const made = requestOf(sampleRequest({ provider: 'adyen', options, secret: KEY, type: 'REFUND', nowSeconds: 1_790_000_000 }))
  const withHeader = (authorization: readonly string[] | undefined) =>
    judge('adyen', {
      ...made,
      headers: { ...made.headers, authorization: [...(authorization ?? [])] } as Record<string, string[]>,
      secrets: [KEY],
      options,
    }).verdict

  expect(made.headers.authorization).toEqual(['Basic YWRhOnBhc3M6d29yZA=='])
  expect(withHeader(made.headers.authorization)).toEqual({ ok: true, secretIndex: 0 })
  expect(withHeader([])).toEqual({ ok: false, reason: 'missing_signature' })
  expect(withHeader(['Basic YWRhOnBhc3M='])).toEqual({ ok: false, reason: 'bad_credentials' })
  expect(() => createProvider('adyen', { basicAuth: 'no-colon' })).toThrow(/basicAuth/)
})

test('a key must be hex, in either case', () => {
  const { scheme } = createProvider('adyen')

  expect([KEY, KEY.toUpperCase(), `${KEY}0`, 'secret', ''].map((key) => isUsableSecret(scheme, key))).toEqual([
    true,
    true,
    false,
    false,
    false,
  ])
})

test('the answer is [accepted] for standard webhooks only', () => {
  const request = { headers: {}, body: Buffer.alloc(0) }

  expect(createProvider('adyen').answer?.(request)).toBe('[accepted]')
  expect(createProvider('adyen', { scheme: 'platform' }).answer).toBeUndefined()
})

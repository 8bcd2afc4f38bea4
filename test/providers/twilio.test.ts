import { createHash, createHmac } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { payloadOf, readEvents } from '../../src/providers/read-events.ts'
import { createProvider } from '../../src/providers/registry.ts'
import { sampleRequest } from '../../src/sandbox/samples.ts'
import { judge } from '../support/judge.ts'
import { requestOf } from '../support/provider-setups.ts'

const URL_ = 'https://hooks.example.com/webhooks/twilio'
const TOKEN = '12345twilioauthtoken'
const MISMATCH = { ok: false, reason: 'signature_mismatch' }

const mac = (text: string, key = TOKEN, algorithm = 'sha1') => createHmac(algorithm, key).update(text).digest('base64')

interface Post {
  publicUrl?: string
  query?: string
  settings?: string | string[]
  secrets?: string[]
}

function post(
  body: string | Buffer,
  signature: string | string[],
  { publicUrl = URL_, query = '', settings = [], secrets = [TOKEN] }: Post = {},
) {
  const headers = { 'X-Twilio-Signature': signature, 'X-Twilio-Webhooks-Signature-Settings': settings }
  return judge('twilio', { body, headers, query, secrets, options: { publicUrl } })
}

const eventOf = (body: string) =>
  readEvents(createProvider('twilio', { publicUrl: URL_ }), { headers: {}, body: Buffer.from(body) }).events[0]

describe('a form', () => {
  test.each([
    ['sorted by name', 'b=2&a=1&A=0', 'A0a1b2'],
    ['decoded', 'a=x%20y+z%2B&%C3%AB=%F0%9F%9A%80', 'ax y z+ë🚀'],
    ['with empty values', 'a=&b', 'ab'],
    ['with doubles once, and sorted', 'a=2&b=0&a=1&a=2', 'a1a2b0'],
    ['of nothing', '', ''],
  ])('is signed with the URL, %s', (_name, body, text) => {
    expect(post(body, mac(URL_ + text)).verdict).toEqual({ ok: true, secretIndex: 0 })
  })

  test('is refused with a field more, less, or changed', () => {
    const signature = mac(`${URL_}MessageSidSM1MessageStatussent`)

    expect(post('MessageSid=SM1&MessageStatus=sent', signature).verdict.ok).toBe(true)
    expect(post('MessageSid=SM1&MessageStatus=read', signature).verdict).toEqual(MISMATCH)
    expect(post('MessageSid=SM1&MessageStatus=sent&MessageStatus=read', signature).verdict).toEqual(MISMATCH)
    expect(post('MessageSid=SM1', signature).verdict).toEqual(MISMATCH)
    expect(post('', signature).verdict).toEqual(MISMATCH)
  })
})

describe('the URL', () => {
  test.each([
    ['with the port of https', URL_, 'https://hooks.example.com:443/webhooks/twilio'],
    [
      'with the port of https, in its own letters',
      'https://Hooks.example.com/é/twilio',
      'https://Hooks.example.com:443/é/twilio',
    ],
    ['without its port', 'https://hooks.example.com:8443/webhooks/twilio', URL_],
    ['with its port', 'https://hooks.example.com:8443/webhooks/twilio', 'https://hooks.example.com:8443/webhooks/twilio'],
    ['with the port of http', 'http://hooks.example.com/t', 'http://hooks.example.com:80/t'],
    ['with a user', 'https://ada:pw@hooks.example.com/t?a=1', 'https://ada:pw@hooks.example.com:443/t?a=1'],
    ['with its query encoded anew', `${URL_}?a=(x)'&b=c d`, `${URL_}?a=(x)'&b=c%20d`],
    ['with its query in the old encoding', `${URL_}?a=x@y&b=1/2`, `${URL_}?a=x%40y&b=1%2F2`],
    ['as it stands', `${URL_}?a=x@y`, `${URL_}?a=x@y`],
    ['with a question mark in its query', `${URL_}?a=b?c`, `${URL_}?a=b?c`],
  ])('is tried %s', (_name, publicUrl, signedUrl) => {
    expect(post('', mac(signedUrl), { publicUrl }).verdict.ok).toBe(true)
  })

  test.each([
    ['http', 'http://hooks.example.com/webhooks/twilio'],
    ['another host', 'https://hooks.example.org/webhooks/twilio'],
    ['a slash at the end', `${URL_}/`],
    ['another port', 'https://hooks.example.com:8443/webhooks/twilio'],
    ['another query', `${URL_}?a=1`],
  ])('is not tried with %s', (_name, signedUrl) => {
    expect(post('', mac(signedUrl)).verdict).toEqual(MISMATCH)
  })

  test('has the query of the request where none of its own is set up, or where that one goes on', () => {
    const own = `${URL_}?foo=1`

    expect(post('', mac(`${URL_}?foo=1`), { query: 'foo=1' }).verdict.ok).toBe(true)
    expect(post('', mac(`${own}&x=2`), { publicUrl: own, query: 'foo=1&x=2' }).verdict.ok).toBe(true)
    expect(post('', mac(`${URL_}?foo=2`), { publicUrl: own, query: 'foo=2' }).verdict).toEqual(MISMATCH)
    expect(post('', mac(`${URL_}?foo=12`), { publicUrl: own, query: 'foo=12' }).verdict).toEqual(MISMATCH)
    expect(post('', mac(own), { publicUrl: own, query: 'anything' }).verdict.ok).toBe(true)
  })

  test('is an option that must be there, and a URL', () => {
    expect(() => createProvider('twilio')).toThrow(/publicUrl/)
    expect(() => createProvider('twilio', { publicUrl: '/webhooks/twilio' })).toThrow(/publicUrl/)
    expect(() => createProvider('twilio', { publicUrl: 'ftp://hooks.example.com' })).toThrow(/publicUrl/)
  })
})

describe('another body', () => {
  const BODY = '{"type":"com.example.call.ended","n":1.0}'
  const sha256 = createHash('sha256').update(BODY).digest('hex')
  const query = `bodySHA256=${sha256}`

  test('is bound by its hash, which stands in the URL', () => {
    const { verdict, events } = post(BODY, mac(`${URL_}?${query}`), { query })

    expect(verdict).toEqual({ ok: true, secretIndex: 0 })
    expect(events).toMatchObject([{ id: `sha256:${sha256}`, idBasis: 'body_hash', type: 'com.example.call.ended' }])
  })

  test('is refused with another hash, one in upper case, or none', () => {
    const wrong = { ok: false, reason: 'body_hash_mismatch' }
    const upper = `bodySHA256=${sha256.toUpperCase()}`

    expect(post(`${BODY} `, mac(`${URL_}?${query}`), { query }).verdict).toEqual(wrong)
    expect(post(BODY, mac(`${URL_}?${upper}`), { query: upper }).verdict).toEqual(wrong)
    expect(post(BODY, mac(`${URL_}?bodySHA256=`), { query: 'bodySHA256=' }).verdict).toEqual(wrong)
    expect(post(BODY, mac(URL_)).verdict).toEqual(wrong)
    expect(post(BODY, mac(`${URL_}?${query}`)).verdict).toEqual(MISMATCH)
  })
})

test('the text of a signed form, cut so that it is JSON too, is refused', () => {
  const text = `"}{"MessageSid":"SM9","MessageStatus":"delivered","z":"`
  const signature = mac(`${URL_}AccountSidAC1Body${text}To+15005550001`)
  const form = new URLSearchParams({ AccountSid: 'AC1', Body: text, To: '+15005550001' }).toString()
  const cut = '{"MessageSid":"SM9","MessageStatus":"delivered","z":"To%2B15005550001&AccountSidAC1Body"}'

  expect(post(form, signature).verdict.ok).toBe(true)
  expect(JSON.parse(cut)).toMatchObject({ MessageSid: 'SM9' })
  expect(post(cut, signature).verdict).toEqual(MISMATCH)
})

describe('the settings header', () => {
  const signed = (algorithm: string) => mac(`${URL_}a1`, 'shared-secret', algorithm)
  const settings = 'key=SK1,algorithm=HMAC_SHA256'
  const none = { ok: false, reason: 'unsupported_algorithm' }

  test('chooses SHA-256, and the secret of its key', () => {
    const passed = { ok: true, secretIndex: 1 }

    expect(post('a=1', signed('sha256'), { settings, secrets: [TOKEN, 'shared-secret'] }).verdict).toEqual(passed)
    expect(post('a=1', signed('sha256'), { settings, secrets: [TOKEN, 'SK1:shared-secret'] }).verdict).toEqual(passed)
    expect(post('a=1', signed('sha256'), { settings, secrets: ['SK2:shared-secret'] }).verdict).toEqual({
      ok: false,
      reason: 'no_matching_key',
    })
    expect(
      post('a=1', signed('sha1'), { settings: 'algorithm=HMAC_SHA1, key=SK1', secrets: ['SK1:shared-secret'] }).verdict.ok,
    ).toBe(true)
  })

  test('means SHA-1 where it names no algorithm, in any letter case', () => {
    const secrets = ['SK1:shared-secret']

    expect(post('a=1', signed('sha1'), { settings: 'key=SK1', secrets }).verdict.ok).toBe(true)
    expect(post('a=1', signed('sha1'), { settings: 'key=SK1,algorithm=', secrets }).verdict.ok).toBe(true)
    expect(post('a=1', signed('sha256'), { settings: 'key=SK1', secrets }).verdict).toEqual(MISMATCH)
    expect(post('a=1', signed('sha256'), { settings: 'key=SK1,algorithm=hmac_sha256', secrets }).verdict.ok).toBe(true)
  })

  test('must fit the signature', () => {
    const secrets = ['shared-secret']

    expect(post('a=1', signed('sha1'), { settings, secrets }).verdict).toEqual(MISMATCH)
    expect(post('a=1', signed('sha256'), { secrets }).verdict).toEqual(MISMATCH)
    expect(post('a=1', signed('sha1'), { settings: '', secrets }).verdict.ok).toBe(true)
  })

  test.each([['key=SK1,algorithm=HMAC_MD5'], ['algorithm=constructor'], [[settings, settings]]])(
    'is refused when it says %j',
    (given) => {
      expect(post('a=1', signed('sha256'), { settings: given, secrets: ['shared-secret'] }).verdict).toEqual(none)
    },
  )
})

test('C-10 C-11 refuses signatures that are missing, doubled or of another form', () => {
  const good = mac(URL_)
  const missing = { ok: false, reason: 'missing_signature' }
  const malformed = { ok: false, reason: 'malformed_signature' }

  expect([post('', []).verdict, post('', '').verdict, post('', ' ').verdict]).toEqual([missing, missing, missing])
  for (const wrong of [
    [good, good],
    good.slice(0, -1),
    `${good}=`,
    ` ${good}`,
    Buffer.from(good, 'base64').toString('hex'),
    'é'.repeat(28),
  ])
    expect(post('', wrong).verdict).toEqual(malformed)
  for (const body of ['%', '&=a&', Buffer.from([0, 0xff, 0xfe]), 'a'.repeat(100_000)])
    expect(post(body, good).verdict).toEqual(MISMATCH)
})

test('IDs and types are put together of what there is', () => {
  const about = (body: string) => {
    const { id, idBasis, type, objectRef } = eventOf(body) ?? {}
    return [id, idBasis, type, objectRef]
  }

  expect(about('MessageSid=SM1&MessageStatus=delivered')).toEqual(['SM1:delivered', 'derived', 'message.delivered', 'SM1'])
  expect(about('SmsSid=SM1&SmsStatus=received')).toEqual(['SM1:received', 'derived', 'message.received', 'SM1'])
  expect(about('MessageSid=SM1&SmsStatus=received&CallSid=x')).toEqual(['SM1:received', 'derived', 'message.received', 'SM1'])
  expect(about('CallSid=CA1&CallStatus=completed')).toEqual(['CA1:completed', 'derived', 'call.completed', 'CA1'])
  expect(about('{"MessageSid":"SM1","MessageStatus":"sent"}')).toEqual(['SM1:sent', 'derived', 'message.sent', 'SM1'])
  expect(about('EventType=onMessageAdded&MessageSid=IM1').slice(1)).toEqual(['body_hash', 'onMessageAdded', null])
})

test('C-29 what names no event is kept for people', () => {
  const unusable = (body: string) =>
    readEvents(createProvider('twilio', { publicUrl: URL_ }), { headers: {}, body: Buffer.from(body) }).unusable

  expect(['', 'a=1', 'MessageSid=SM1', 'MessageSid=a&MessageSid=b&MessageStatus=sent', '[]', '{'].map(unusable)).toEqual([
    'empty_body',
    'no_id',
    'no_id',
    'no_id',
    'not_an_object',
    'not_json',
  ])
})

test('rules get fields as text, a repeated one as a list', () => {
  const provider = createProvider('twilio', { publicUrl: URL_ })
  const body = Buffer.from('MessageSid=SM1&MessageStatus=sent&MediaUrl=a&MediaUrl=b&__proto__=x')

  expect(payloadOf(provider, { headers: {}, body }, 'SM1:sent')).toEqual(
    JSON.parse('{"MessageSid":"SM1","MessageStatus":"sent","MediaUrl":["a","b"],"__proto__":"x"}'),
  )
})

test.each(['message.delivered', 'call.completed'])('a sample of %s verifies and comes back', (type) => {
  const options = { publicUrl: `${URL_}?foo=1` }
  const made = requestOf(sampleRequest({ provider: 'twilio', options, secret: TOKEN, type, id: 'S1', nowSeconds: 1 }))
  const { verdict, events } = judge('twilio', {
    ...made,
    headers: { ...made.headers } as Record<string, string[]>,
    secrets: [TOKEN],
    options,
  })

  expect(verdict).toEqual({ ok: true, secretIndex: 0 })
  expect(events).toMatchObject([{ id: `S1:${type.split('.')[1]}`, type }])
})

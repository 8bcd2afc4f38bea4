import { createHash, createHmac, generateKeyPairSync, sign } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { createProvider } from '../../src/providers/registry.ts'
import { judge } from '../support/judge.ts'

// What is read of a body before anybody is known: it has to stay little, whoever sends it.

const MALFORMED = { ok: false, reason: 'malformed_signature' }
const MISSING = { ok: false, reason: 'missing_signature' }
const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const PEM = publicKey.export({ format: 'pem', type: 'spki' }) as string

/** A form of so many fields, with distinct names. */
const names = (count: number) => Array.from({ length: count }, (_, index) => `f${index}=`)
const values = (count: number) => Array<string>(count).fill('0').join(',')

describe('a form of more than a thousand fields is refused unread, although it is signed', () => {
  const PUBLIC_URL = 'https://hooks.example.com/webhooks/twilio'

  test('twilio', () => {
    const post = (fields: string[]) => {
      const text = `${PUBLIC_URL}${fields
        .map((field) => field.slice(0, -1))
        .sort()
        .join('')}`
      const signature = createHmac('sha1', 'token').update(text).digest('base64')
      const headers = { 'X-Twilio-Signature': signature }
      return judge('twilio', { body: fields.join('&'), headers, secrets: ['token'], options: { publicUrl: PUBLIC_URL } }).verdict
    }

    expect(post(names(1_000))).toEqual({ ok: true, secretIndex: 0 })
    expect(post(names(1_001))).toEqual(MALFORMED)
  })

  test('braintree', () => {
    const digest = createHmac('sha1', createHash('sha1').update('private').digest()).update('PGE+\n').digest('hex')
    const body = (more: string[]) => [`bt_signature=public%7C${digest}`, 'bt_payload=PGE%2B%0A', ...more].join('&')
    const post = (more: string[]) => judge('braintree', { body: body(more), secrets: ['public:private'] }).verdict

    expect(post(names(998))).toEqual({ ok: true, secretIndex: 0 })
    expect(post(names(999))).toEqual(MALFORMED)
  })

  test('paddle-classic', () => {
    const post = (fields: string[]) => {
      const string = (text: string) => `s:${text.length}:"${text}";`
      const pairs = fields
        .map((field) => `${string(field.slice(0, -1))}${string('')}`)
        .sort((a, b) => (a.slice(4) < b.slice(4) ? -1 : 1))
      const signature = sign('sha1', Buffer.from(`a:${fields.length}:{${pairs.join('')}}`), privateKey).toString('base64')
      const body = [...fields, `p_signature=${encodeURIComponent(signature)}`].join('&')
      return judge('paddle-classic', { body, secrets: [PEM] }).verdict
    }

    expect(post(names(999))).toEqual({ ok: true, secretIndex: 0 })
    expect(post(names(1_000))).toEqual(MALFORMED)
  })

  test('and a signed form of GitHub is not read', () => {
    const body = `payload=%7B%22action%22%3A%22created%22%7D&${names(1_000).join('&')}`
    const digest = createHmac('sha256', 'gh_test').update(body).digest('hex')
    const headers = { 'X-Hub-Signature-256': `sha256=${digest}`, 'X-GitHub-Delivery': 'd1', 'X-GitHub-Event': 'sponsorship' }

    expect(judge('github', { body, headers, secrets: ['gh_test'] })).toMatchObject({
      verdict: { ok: true },
      unusable: 'not_json',
    })
  })
})

describe('JSON of more than ten thousand values is refused unread, although it is signed', () => {
  test('mailgun', () => {
    const token = 'a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0'
    const signature = createHmac('sha256', 'mg_test').update(`1790000000${token}`).digest('hex')
    const post = (count: number) => {
      const signed = JSON.stringify({ timestamp: '1790000000', token, signature })
      const body = `{"signature":${signed},"event-data":[${values(count)}]}`
      return judge('mailgun', { body, secrets: ['mg_test'], now: 1_790_000_000 }).verdict
    }

    expect(post(9_900)).toMatchObject({ ok: true })
    expect(post(10_001)).toEqual(MISSING)
  })

  test('adyen', () => {
    const key = '00'.repeat(32)
    const text = 'P::M:R:1000:EUR:AUTHORISATION:true'
    const hmacSignature = createHmac('sha256', Buffer.alloc(32)).update(text).digest('base64')
    const item = (amount: unknown = 1000) => ({
      NotificationRequestItem: {
        pspReference: 'P',
        merchantAccountCode: 'M',
        merchantReference: 'R',
        amount: { value: amount, currency: 'EUR' },
        eventCode: 'AUTHORISATION',
        success: 'true',
        additionalData: { hmacSignature },
      },
    })
    const post = (items: unknown[], more = '0') => {
      const body = `{"live":"true","notificationItems":${JSON.stringify(items)},"more":[${more}]}`
      return judge('adyen', { body, secrets: [key] }).verdict
    }

    expect(post([item()], values(9_900))).toEqual({ ok: true, secretIndex: 0 })
    expect(post([item()], values(10_001))).toEqual(MISSING)
    expect(post(Array(100).fill(item())).ok).toBe(true)
    expect(post(Array(101).fill(item()))).toEqual(MALFORMED)
    // Its digits are not known any more.
    expect(post([item(2 ** 53)])).toEqual(MALFORMED)
    expect(post([item(0.5)])).toEqual(MALFORMED)
    expect(post([item()], '12345678901234567890').ok).toBe(true)
  })

  test('aws-sns', () => {
    const topicArns = ['arn:aws:sns:eu-west-1:1:t']
    const body = (count: number) =>
      `{"SignatureVersion":"3","Signature":"AAAA","Type":"Notification","MessageAttributes":[${values(count)}]}`
    const verdictOf = (count: number) => judge('aws-sns', { body: body(count), options: { topicArns } }).verdict

    expect(verdictOf(9_900)).toEqual({ ok: false, reason: 'unsupported_algorithm' })
    expect(verdictOf(10_001)).toEqual(MISSING)
  })

  test('what stands in texts counts for nothing', () => {
    const text = JSON.stringify({ signature: ',[{'.repeat(50_000) })

    expect(judge('mailgun', { body: text, secrets: ['mg_test'] }).verdict).toEqual(MISSING)
    expect(judge('mailgun', { body: text.replace('"signature":', '"signature":{"signature":').concat('}') }).verdict).toEqual(
      MALFORMED,
    )
  })
})

test.each([
  ['twilio', { publicUrl: 'https://hooks.example.com/' }, 262_144],
  ['braintree', {}, 262_144],
  ['paddle-classic', {}, 65_536],
  ['mollie', { classic: true }, 1_024],
  ['mailgun', {}, 262_144],
  ['adyen', {}, 524_288],
  ['aws-sns', { topicArns: ['arn:aws:sns:eu-west-1:1:t'] }, 524_288],
])('%s, which looks for its signature in the body, takes no long one', (name, options, bytes) => {
  expect(createProvider(name, options).maxBodyBytes).toBe(bytes)
})

import { crc32 } from 'node:zlib'
import { z } from 'zod'
import { chainedKey, isCertificate, pinnedKeys, plainHttpsUrl } from '../certificates.ts'
import { field, parseJson, parseUnverified } from '../json.ts'
import { defineProvider, type Postback, type ProviderFacts, type WebhookRequest } from '../provider.ts'
import { type FoundScheme, headerValue, type Reason, type SignatureKind } from '../signature.ts'
import { readTime } from '../time.ts'

const HOSTS = ['api.paypal.com', 'api-m.paypal.com', 'api.sandbox.paypal.com', 'api-m.sandbox.paypal.com']
const PATH = '/v1/notifications/certs/'
const CERT_PATH = /^\/v1\/notifications\/certs\/[A-Za-z0-9_-]+$/
const TEST_KEY = `${PATH}ONCEHOOK-TEST`
const KIND: SignatureKind = { kind: 'rsa', algorithm: 'sha256', encoding: 'base64', secret: 'remote' }
const HEADERS = {
  algorithm: 'paypal-auth-algo',
  certUrl: 'paypal-cert-url',
  id: 'paypal-transmission-id',
  time: 'paypal-transmission-time',
  signature: 'paypal-transmission-sig',
} as const

const optionsSchema = z.strictObject({
  /** Hosts that certificates may come from, in place of PayPal's four. */
  certHosts: z.array(z.hostname()).min(1).optional(),
  /** Certificates by URL, used in place of a download. */
  certs: z.record(z.string(), z.string().refine(isCertificate, 'must be a certificate in PEM')).optional(),
  /** Has PayPal check each signature itself, by this app of the same account. */
  postback: z
    .strictObject({
      clientId: z.string().min(1),
      clientSecret: z.string().min(1),
      environment: z.enum(['live', 'sandbox']).default('live'),
    })
    .optional(),
})
type Options = z.infer<typeof optionsSchema>

function create({ certHosts = HOSTS, certs = {}, postback }: Options): ProviderFacts {
  return {
    name: 'paypal',
    documentation: 'https://developer.paypal.com/api/rest/webhooks/rest/',
    scheme: schemeOf(certHosts),
    // Its host says whether the event is of the sandbox.
    factHeaders: [HEADERS.certUrl],
    idIsSigned: true,
    contentIsSigned: true,
    idBasis: 'provider',
    id: (event) => field(event, 'id'),
    type: (event) => field(event, 'event_type'),
    livemode: (_event, { headers }) => {
      const host = plainHttpsUrl(headerValue(headers, HEADERS.certUrl) ?? '')?.hostname
      return host !== undefined && HOSTS.includes(host) ? !host.includes('.sandbox.') : undefined
    },
    occurredAt: (event) => field(event, 'create_time'),
    object: (event) => field(field(event, 'resource'), 'id'),
    knownKeys: pinnedKeys(certs),
    ...(postback
      ? { postback: postbackOf(postback) }
      : {
          remoteKeys: {
            request: (url) => ({ url }),
            // PayPal's own SDKs ask for this name as well.
            read: (pem, _url, nowSeconds) => chainedKey(pem, nowSeconds, (name) => /\.paypal\.com$/i.test(name)),
          },
        }),
  }
}

function schemeOf(hosts: readonly string[]): FoundScheme {
  return {
    signatures: [KIND],
    place: 'header `PAYPAL-TRANSMISSION-SIG`, by the certificate at `PAYPAL-CERT-URL`',
    signed: 'transmission ID, transmission time, webhook ID and the CRC-32 of the body, with `|` between them',
    timestamp: 'header `PAYPAL-TRANSMISSION-TIME`',
    proofs(request) {
      const sent = transmissionOf(request)
      if (typeof sent === 'string') return sent
      if (sent.algorithm !== 'SHA256withRSA') return 'unsupported_algorithm'
      const url = plainHttpsUrl(sent.certUrl)
      if (!url || !hosts.includes(url.hostname) || !CERT_PATH.test(url.pathname)) return 'untrusted_cert_url'
      const signedAt = readTime(sent.time)
      if (!signedAt || !/^[A-Za-z0-9+/]+={0,2}$/.test(sent.signature)) return 'malformed_signature'
      const checksum = crc32(request.body)
      return [
        {
          signatures: [{ kind: KIND, given: [sent.signature], keyName: sent.certUrl }],
          signed: (webhookId) => [[`${sent.id}|${sent.time}|${webhookId}|${checksum}`]],
          signedAt: signedAt.getTime() / 1000,
        },
      ]
    },
  }
}

type Transmission = Record<keyof typeof HEADERS, string>

function transmissionOf({ headers }: WebhookRequest): Transmission | Reason {
  const [signature, ...more] = headers[HEADERS.signature] ?? []
  if (!signature?.trim()) return 'missing_signature'
  const [id, time] = [headerValue(headers, HEADERS.id), headerValue(headers, HEADERS.time)]
  const [algorithm, certUrl] = [headerValue(headers, HEADERS.algorithm), headerValue(headers, HEADERS.certUrl)]
  return more.length === 0 && id && time && algorithm && certUrl
    ? { signature, id, time, algorithm, certUrl }
    : 'malformed_signature'
}

function postbackOf({ clientId, clientSecret, environment }: NonNullable<Options['postback']>): Postback {
  const api = `https://api-m.${environment === 'sandbox' ? 'sandbox.' : ''}paypal.com`
  return {
    token: () => ({
      url: `${api}/v1/oauth2/token`,
      headers: {
        authorization: `Basic ${Buffer.from(`${clientId}:${clientSecret}`).toString('base64')}`,
        'content-type': 'application/x-www-form-urlencoded',
      },
      body: 'grant_type=client_credentials',
    }),
    readToken(text) {
      const answer = parseJson(text)
      const token = answer.ok ? field(answer.value, 'access_token') : undefined
      const seconds = answer.ok ? field(answer.value, 'expires_in') : undefined
      return typeof token === 'string' && typeof seconds === 'number' ? { token, seconds } : undefined
    },
    question(request, webhookId, token) {
      const sent = transmissionOf(request)
      // A body of anything but one JSON value would end the event early and go on with fields of its own.
      if (typeof sent === 'string' || parseUnverified(request.body) === undefined) return undefined
      const facts = JSON.stringify({
        auth_algo: sent.algorithm,
        cert_url: sent.certUrl,
        transmission_id: sent.id,
        transmission_sig: sent.signature,
        transmission_time: sent.time,
        webhook_id: webhookId,
      })
      return {
        url: `${api}/v1/notifications/verify-webhook-signature`,
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        // The event goes out with the bytes that came: written anew, 1.0 would become 1, and PayPal would deny it.
        body: Buffer.concat([Buffer.from(`${facts.slice(0, -1)},"webhook_event":`), request.body, Buffer.from('}')]),
      }
    },
    read(text) {
      const answer = parseJson(text)
      const status = answer.ok ? field(answer.value, 'verification_status') : undefined
      return status === 'SUCCESS' ? true : status === 'FAILURE' ? false : undefined
    },
  }
}

/** Hosts of a source as its configuration names them; the provider was created with them, so they have passed its schema. */
function hostsOf(options: Readonly<Record<string, unknown>>): readonly string[] {
  return (options as Options).certHosts ?? HOSTS
}

/** PayPal, certificates or postback (developer.paypal.com/api/rest/webhooks/rest; PayPal-Python-SDK `notifications.py`). */
export const paypal = defineProvider({
  name: 'paypal',
  title: 'PayPal',
  options: optionsSchema,
  create,
  guide: {
    setUp:
      'In the Developer Dashboard open the app under Apps & Credentials, add a webhook with the address `https://YOUR-HOST/webhooks/paypal` (https on port 443 only) and choose the event types, such as `PAYMENT.CAPTURE.COMPLETED`, `PAYMENT.CAPTURE.DENIED`, `PAYMENT.CAPTURE.REFUNDED`, `BILLING.SUBSCRIPTION.CANCELLED` and `PAYMENT.PAYOUTSBATCH.SUCCESS`. Then copy the webhook ID. Live and sandbox are apps of their own.',
    secret:
      'The **webhook ID** that PayPal shows beside the address. It is part of what is signed and takes the place of a secret: it binds an event to this endpoint. Nobody can sign with it, but don’t publish it.',
    identity:
      '`id` (`WH-…`) and `event_type` of the body. The host of the certificate tells the sandbox: its events on a source of mode `live` are stored as `ignored` and cause no email.',
    unsigned:
      'Of the event nothing, within limits: the body is covered by its CRC-32 only, which shows that it is the one that PayPal sent as long as nobody sets out to make another with the same checksum. Such a body can be made by somebody who has caught a genuine request on its way, so keep to https; for large amounts add `confirm` and fetch the order, capture or subscription back.',
    retries:
      'Any 2xx is success; otherwise up to 25 more times over 3 days, in no order. The ID stays, transmission ID, time and signature change (not confirmed).',
    traps: [
      'The certificate is downloaded from the address in the request, and only from `api.paypal.com`, `api-m.paypal.com` and their sandbox twins (option `certHosts`), then kept for at most a day. It has to be valid, in the name of `*.paypal.com`, and issued through the certificates in the same file by one that this machine trusts. Whether PayPal’s file always holds those in between is not confirmed: where it doesn’t, name a file with them in `NODE_EXTRA_CA_CERTS`.',
      'Without access to PayPal when a certificate is needed the answer is 503, and PayPal delivers again. `certs: { URL: PEM }` pins certificates instead; an expired one is refused.',
      "With `postback: { clientId, clientSecret: env.text('PAYPAL_CLIENT_SECRET') }` of the same app (and `environment: 'sandbox'` for the sandbox) PayPal is asked about each request instead. It costs a call and a dependency at each delivery, one for every forged request in the right form too, and does not work for events of the simulator. Use it where certificates can’t be had.",
      'PayPal names no bound for the age of a delivery. If you set `toleranceSeconds`, allow days.',
    ],
  },
  sample: {
    types: {
      paid: 'PAYMENT.CAPTURE.COMPLETED',
      failed: 'PAYMENT.CAPTURE.DENIED',
      refunded: 'PAYMENT.CAPTURE.REFUNDED',
      'subscription ended': 'BILLING.SUBSCRIPTION.CANCELLED',
      payout: 'PAYMENT.PAYOUTSBATCH.SUCCESS',
    },
    newId: (unique) => `WH-${unique.slice(0, 17).toUpperCase()}-${unique.slice(7).toUpperCase()}`,
    keyNames: (options) => hostsOf(options).map((host) => `https://${host}${TEST_KEY}`),
    request: ({ type, id, happenedSeconds, nowSeconds, email, livemode, secret, options }, sign) => {
      const hosts = hostsOf(options)
      const host = hosts.find((each) => each.includes('.sandbox.') !== livemode) ?? hosts[0]
      const timeText = (seconds: number) => new Date(seconds * 1000).toISOString().replace('.000Z', 'Z')
      const [time, sentTime] = [timeText(happenedSeconds), timeText(nowSeconds)]
      const isSubscription = type.startsWith('BILLING.SUBSCRIPTION.')
      const body = JSON.stringify({
        id,
        event_version: '1.0',
        create_time: time,
        resource_type: isSubscription ? 'subscription' : type.startsWith('PAYMENT.PAYOUTSBATCH.') ? 'payouts' : 'capture',
        resource_version: '2.0',
        event_type: type,
        summary: 'A sample event',
        resource: {
          id: `${isSubscription ? 'I-' : ''}${id.replace(/^WH-/, '')}`,
          amount: { currency_code: 'EUR', value: '42.00' },
          payer: { email_address: email },
          subscriber: { email_address: email },
          create_time: time,
        },
        links: [],
      })
      return {
        headers: {
          'paypal-auth-algo': 'SHA256withRSA',
          'paypal-cert-url': `https://${host}${TEST_KEY}`,
          'paypal-transmission-id': id,
          'paypal-transmission-time': sentTime,
          'paypal-transmission-sig': sign(`${id}|${sentTime}|${secret}|${crc32(body)}`),
        },
        body,
      }
    },
  },
})

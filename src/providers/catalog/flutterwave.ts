import { z } from 'zod'
import { derivedId } from '../derived-id.ts'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'

const flutterwaveOptions = z.strictObject({ version: z.enum(['v4', 'v3']).default('v4') })

const dataId = (event: unknown) => field(field(event, 'data'), 'id')

const common = {
  name: 'flutterwave',
  documentation: 'https://developer.flutterwave.com/docs/webhooks',
  toleranceSeconds: 300,
  hashWithoutId: true,
} as const

const versions: Record<'v4' | 'v3', ProviderFacts> = {
  v4: {
    ...common,
    scheme: {
      signatures: [
        {
          kind: 'hmac',
          header: 'flutterwave-signature',
          match: /^([A-Za-z0-9+/]{43}=)$/g,
          algorithm: 'sha256',
          encoding: 'base64',
          secret: { form: 'text' },
        },
      ],
      signed: '{body}',
    },
    idIsSigned: true,
    contentIsSigned: true,
    idBasis: 'provider',
    id: (event) => field(event, 'webhook_id'),
    type: (event) => field(event, 'type'),
    occurredAt: (event) => field(event, 'timestamp'),
    object: dataId,
  },
  v3: {
    ...common,
    scheme: {
      signatures: [{ kind: 'credential', header: 'verif-hash', match: /^(.+)$/g, encoding: 'plain', secret: { form: 'text' } }],
      signed: '',
    },
    idIsSigned: false,
    contentIsSigned: false,
    idBasis: 'derived',
    id: (event) => derivedId(field(event, 'event'), dataId(event)),
    type: (event) => field(event, 'event'),
    // The numbers of charges and transfers are counted each for itself.
    object: (event) => {
      const type = field(event, 'event')
      return typeof type === 'string' ? derivedId(type.replace(/\.[^.]*$/, ''), dataId(event)) : undefined
    },
  },
}

/** Flutterwave, v4 (signed) and v3 (a shared text only) (developer.flutterwave.com/docs/webhooks). */
export const flutterwave = defineProvider({
  name: 'flutterwave',
  title: 'Flutterwave',
  options: flutterwaveOptions,
  create: ({ version }) => versions[version],
  guide: {
    setUp:
      "In the Dashboard under Settings, Webhooks, enter `https://YOUR-HOST/webhooks/flutterwave`, make up a secret hash, and switch retries on. All events come (`charge.completed`, `refund.completed`, `transfer.disburse`); the rules choose. For an account on API v3 set `version: 'v3'`. Test and live are separate: make them two sources, the first with `mode: 'test'`.",
    variants: [{ title: 'v3', options: { version: 'v3' } }],
    secret: 'The secret hash that you made up, as text. With v4 it signs; with v3 it is sent along as it is.',
    identity:
      'v4: `webhook_id` and `type` of the body, `timestamp` (milliseconds) as the time; these names are not confirmed. v3 gives no event ID: `event:data.id` is put together, and `event` is the type. Without these the ID is the hash of the body. The body says nothing of test mode.',
    unsigned:
      'v4: nothing of the event, but there is no signed time: only the ID stops a replay. v3: **everything**. Whoever has seen one request can make up any event: fetch the transaction back with `confirm` before anything is sent.',
    retries:
      'Success is 200 within 60 s. Not confirmed: up to 3 more deliveries, 30 min apart, if switched on; whether v4 keeps `webhook_id` is not known.',
    traps: [
      'Look at the first events that arrive: `webhook_id` must differ from event to event. It is taken for the event’s own ID.',
      '`charge.completed` comes for failed charges too: look at `data.status` (`succeeded`; in v3 `successful`).',
      'With v3 an event about the same object with other content has the same derived ID: as anybody with the hash could make one up, each is an event of its own. `confirm` tells which is real, and a key made of the transaction’s ID keeps a second email back.',
    ],
  },
  sample: {
    types: { paid: 'charge.completed', refunded: 'refund.completed', payout: 'transfer.disburse' },
    newId: (unique) => `wbk_${unique}`,
    request: ({ type, id, happenedSeconds, email, options }, sign) => {
      const amounts = { amount: 4200, currency: 'NGN' }
      if (flutterwaveOptions.parse(options).version === 'v3') {
        const body = JSON.stringify({
          event: type,
          'event.type': 'CARD_TRANSACTION',
          data: {
            id: /^\d{1,15}$/.test(id) ? Number(id) : id,
            tx_ref: `SAMPLE-${id}`,
            ...amounts,
            status: 'successful',
            customer: { email },
          },
        })
        return { headers: { 'verif-hash': sign('') }, body }
      }
      const body = JSON.stringify({
        webhook_id: id,
        timestamp: happenedSeconds * 1000,
        type,
        data: {
          id: `chg_${id.replace(/^wbk_/, '')}`,
          ...amounts,
          status: 'succeeded',
          customer: { id: 'cus_sample', email },
          meta: {},
        },
      })
      return { headers: { 'flutterwave-signature': sign(body) }, body }
    },
  },
})

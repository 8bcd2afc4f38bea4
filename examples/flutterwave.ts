import { defineConfig, env, key } from 'oncehook'

// Flutterwave v4. With `version: 'v3'` nothing is signed: then give the source a `confirm` that asks for the transaction by its
// ID.
export default defineConfig({
  sources: {
    flutterwave: { provider: 'flutterwave', secrets: env.list('FLUTTERWAVE_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'flutterwave',
      type: 'charge.completed',
      // A charge that failed is completed too.
      email: ({ data }) =>
        data.status === 'succeeded' && {
          key: key('charge', data.id, 'completed'),
          to: data.customer.email,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'refund',
      source: 'flutterwave',
      type: 'refund.completed',
      email: ({ data }) =>
        data.status === 'succeeded' && {
          key: key('refund', data.id, 'completed'),
          to: data.customer?.email,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
    {
      name: 'payout',
      source: 'flutterwave',
      type: 'transfer.disburse',
      email: ({ data }) =>
        data.status === 'succeeded' && {
          key: key('transfer', data.id, 'disbursed'),
          to: 'accounting@example.com',
          from_email: 'billing@example.com',
          subject: `Flutterwave has paid out ${data.id}`,
          html_body: '<p>The money is on its way to our account.</p>',
        },
    },
  ],
})

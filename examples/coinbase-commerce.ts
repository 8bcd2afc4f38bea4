import { defineConfig, env, key } from 'oncehook'

// Coinbase Commerce says nothing of the customer. Put the address into the metadata of the charge.
export default defineConfig({
  sources: {
    'coinbase-commerce': { provider: 'coinbase-commerce', secrets: env.list('COINBASE_COMMERCE_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'coinbase-commerce',
      type: 'charge:confirmed',
      email: ({ event: { data: charge } }) => ({
        key: key('charge', charge.code, 'confirmed'),
        to: charge.metadata.email,
        from_email: 'billing@example.com',
        subject: 'We received your payment',
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'coinbase-commerce',
      type: 'charge:failed',
      email: ({ event: { data: charge } }) => ({
        key: key('charge', charge.code, 'failed'),
        to: charge.metadata.email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
  ],
})

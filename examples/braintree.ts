import { defineConfig, env, key } from 'oncehook'

// The secrets of a Braintree source are `public_key:private_key`. Its XML arrives as JSON, with the names as they are; the
// transactions of a subscription stand newest first.
export default defineConfig({
  sources: {
    braintree: { provider: 'braintree', secrets: env.list('BRAINTREE_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'braintree',
      type: 'subscription_charged_successfully',
      email: ({ subject: { subscription } }) => ({
        key: key('transaction', subscription.transactions[0].id, 'charged'),
        to: subscription.transactions[0].customer.email,
        from_email: 'billing@example.com',
        subject: 'We received your payment',
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'braintree',
      type: 'subscription_charged_unsuccessfully',
      email: ({ subject: { subscription } }) => ({
        key: key('transaction', subscription.transactions[0].id, 'failed'),
        to: subscription.transactions[0].customer.email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'subscription ended',
      source: 'braintree',
      type: ['subscription_canceled', 'subscription_expired'],
      // One that was never charged has no transaction, and so no address: look it up by the subscription.
      email: ({ subject: { subscription } }) =>
        subscription.transactions[0]?.customer.email && {
          key: key('subscription', subscription.id, 'ended'),
          to: subscription.transactions[0]?.customer.email,
          from_email: 'billing@example.com',
          subject: 'Your subscription has ended',
          html_body: '<p>We are sorry to see you go.</p>',
        },
    },
    {
      name: 'payout',
      source: 'braintree',
      type: 'disbursement',
      email: ({ subject: { disbursement } }) => ({
        key: key('disbursement', disbursement.id, 'paid'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: `Braintree has paid out ${disbursement.id}`,
        html_body: '<p>The money is on its way to our account.</p>',
      }),
    },
  ],
})
